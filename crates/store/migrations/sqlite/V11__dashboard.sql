-- Pages for people: who is signed in, who sees the office's health, and what the pages of tasks are read by.

-- Links that sign a browser in, once. Of links and browsers the SHA-256 of their secret.
CREATE TABLE dashboard_links (
    hash TEXT PRIMARY KEY,
    agent_id INTEGER NOT NULL REFERENCES agents,
    -- The key that the link was made with; when that ends, so does what came of the link.
    key_hash TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dashboard_links_agent ON dashboard_links (agent_id, until);

CREATE TABLE dashboard_browsers (
    hash TEXT PRIMARY KEY,
    agent_id INTEGER NOT NULL REFERENCES agents,
    key_hash TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dashboard_browsers_agent ON dashboard_browsers (agent_id, until);

CREATE TABLE operators (
    agent_id INTEGER PRIMARY KEY REFERENCES agents,
    since INTEGER NOT NULL
) STRICT;

CREATE INDEX tasks_owner_state ON tasks (owner_id, state, updated_at);
CREATE INDEX tasks_assignee_state ON tasks (assignee_id, state, updated_at);
CREATE INDEX tasks_session ON tasks (session_public_id);
