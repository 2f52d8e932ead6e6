-- How waking the clients of an agent stands, as the processes that ring report it: a few client sessions of each agent, for its person.
CREATE TABLE wake_sessions (
    agent_id INTEGER NOT NULL REFERENCES agents,
    -- A hash of the client's own name for the session.
    session TEXT NOT NULL,
    client TEXT NOT NULL,
    door TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    -- Counts since the process that rings began.
    rung INTEGER NOT NULL,
    held INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    -- When the state was first reported, and when it was last.
    since INTEGER NOT NULL,
    reported_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, session)
) STRICT, WITHOUT ROWID;
