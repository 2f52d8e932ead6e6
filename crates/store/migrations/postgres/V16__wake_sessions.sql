-- How waking the clients of an agent stands, as the processes that ring report it: a few client sessions of each agent, for its person.
CREATE TABLE wake_sessions (
    agent_id BIGINT NOT NULL REFERENCES agents,
    -- A hash of the client's own name for the session.
    session TEXT NOT NULL,
    client TEXT NOT NULL,
    door TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    -- Counts since the process that rings began.
    rung BIGINT NOT NULL,
    held BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    -- When the state was first reported, and when it was last.
    since TIMESTAMPTZ NOT NULL,
    reported_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (agent_id, session)
);
