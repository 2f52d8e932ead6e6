-- Tasks, groups and transcripts.

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    owner_id INTEGER NOT NULL REFERENCES agents,
    assignee_id INTEGER NOT NULL REFERENCES agents,
    state TEXT NOT NULL,
    subject TEXT,
    -- The message that brought it, and the thread: a task outlives both.
    message_id INTEGER NOT NULL,
    message_public_id BLOB NOT NULL,
    session_public_id BLOB NOT NULL,
    parent_id INTEGER REFERENCES tasks,
    deadline INTEGER,
    overdue INTEGER NOT NULL DEFAULT 0,
    note TEXT,
    callback TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX tasks_owner ON tasks (owner_id, id);
CREATE INDEX tasks_assignee ON tasks (assignee_id, id);
CREATE INDEX tasks_current ON tasks (assignee_id) WHERE state IN ('accepted', 'working');
CREATE INDEX tasks_due ON tasks (deadline) WHERE overdue = 0 AND state IN ('pending', 'accepted', 'working');
CREATE INDEX tasks_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_message ON tasks (message_id);

CREATE TABLE groups (
    id INTEGER PRIMARY KEY,
    -- Groups are written to as agents are, so no agent has the same name.
    name TEXT NOT NULL UNIQUE,
    owner_id INTEGER NOT NULL REFERENCES agents,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE group_members (
    group_id INTEGER NOT NULL,
    agent_id INTEGER NOT NULL,
    joined INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_members_agent ON group_members (agent_id, group_id);

-- Which entries deliver a group's message.
CREATE TABLE copies (
    message_id INTEGER NOT NULL,
    agent_id INTEGER NOT NULL,
    entry_id INTEGER NOT NULL,
    PRIMARY KEY (message_id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX entries_read ON entries (read_at) WHERE read_at IS NOT NULL;

CREATE TABLE transcripts (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    owner_id INTEGER NOT NULL REFERENCES agents,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE transcript_access (
    transcript_id INTEGER NOT NULL,
    agent_id INTEGER NOT NULL,
    may_write INTEGER NOT NULL,
    PRIMARY KEY (transcript_id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE transcript_lines (
    -- transcript << 32 | place.
    id INTEGER PRIMARY KEY,
    transcript_id INTEGER NOT NULL,
    author_id INTEGER NOT NULL,
    message_id TEXT,
    line TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX transcript_lines_message ON transcript_lines (transcript_id, message_id) WHERE message_id IS NOT NULL;
