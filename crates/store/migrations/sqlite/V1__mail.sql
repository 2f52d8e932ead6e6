-- Agents, who may write to whom, sessions, messages and the log of each mailbox.
--
-- Instants are microseconds since 1970. Ids that the world sees are UUIDs (16 bytes); rows join by integers.
-- Tables on the path of a send carry no REFERENCES: each would cost a look-up a message, and only one thread of one
-- process ever writes here.

CREATE TABLE agents (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL,
    -- A deleted agent keeps its row, so that others' history stays readable and nobody can take its name.
    name TEXT NOT NULL UNIQUE,
    api_key_hash TEXT UNIQUE,
    api_key_prefix TEXT NOT NULL,
    previous_key_hash TEXT,
    previous_key_until INTEGER,
    owner_contact TEXT,
    description TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    allow_from TEXT NOT NULL,
    max_concurrent_tasks INTEGER NOT NULL,
    discoverable INTEGER NOT NULL DEFAULT 1,
    -- The highest number that was ever pruned from the agent's log: numbers are never given twice.
    log_floor INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;

CREATE UNIQUE INDEX agents_previous_key ON agents (previous_key_hash) WHERE previous_key_hash IS NOT NULL;

CREATE TABLE presence (
    agent_id INTEGER PRIMARY KEY REFERENCES agents,
    last_seen INTEGER NOT NULL,
    -- 0 after a goodbye.
    here INTEGER NOT NULL DEFAULT 1
) STRICT;

-- A block is a row of its own from the one who blocks to the one who is blocked.
CREATE TABLE connections (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    requester_id INTEGER NOT NULL REFERENCES agents,
    target_id INTEGER NOT NULL REFERENCES agents,
    -- The pair in one order, whoever asked.
    low_id INTEGER NOT NULL,
    high_id INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'PENDING',
    verification_code TEXT,
    code_private INTEGER NOT NULL DEFAULT 0,
    message TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    CHECK (requester_id <> target_id)
) STRICT;

CREATE UNIQUE INDEX connections_code ON connections (verification_code) WHERE status = 'PENDING';
CREATE UNIQUE INDEX connections_one_pending ON connections (requester_id, target_id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX connections_one_active ON connections (low_id, high_id) WHERE status = 'ACTIVE';
CREATE UNIQUE INDEX connections_one_block ON connections (requester_id, target_id) WHERE status = 'BLOCKED';
CREATE INDEX connections_requester ON connections (requester_id, updated_at);
CREATE INDEX connections_target ON connections (target_id, status);
CREATE INDEX connections_expiry ON connections (expires_at) WHERE status = 'PENDING';

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    subject TEXT NOT NULL,
    -- The subject as sessions are found by it: without case and outer space.
    subject_key TEXT NOT NULL,
    initiator_id INTEGER NOT NULL REFERENCES agents,
    -- The other side; NULL for a group.
    participant_id INTEGER REFERENCES agents,
    group_id INTEGER,
    low_id INTEGER,
    high_id INTEGER,
    created_at INTEGER NOT NULL,
    CHECK (initiator_id <> participant_id)
) STRICT;

CREATE UNIQUE INDEX sessions_pair_subject ON sessions (low_id, high_id, subject_key) WHERE low_id IS NOT NULL;
CREATE UNIQUE INDEX sessions_group_subject ON sessions (group_id, subject_key) WHERE group_id IS NOT NULL;

CREATE TABLE session_members (
    agent_id INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    unread INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_members_session ON session_members (session_id, agent_id);

CREATE TABLE messages (
    -- session << 32 | place in the session: a thread lies together, in order, and needs no index of its own.
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    sender_id INTEGER NOT NULL,
    -- The entry that delivers it to its one recipient; NULL for a group.
    delivery_id INTEGER,
    created_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    -- NULL for a plain message.
    kind TEXT,
    -- NULL where it is the sender alone.
    trace TEXT,
    reply_to BLOB,
    correlation_id TEXT,
    task TEXT,
    callback TEXT,
    content TEXT NOT NULL,
    -- NULL where the content is one text.
    parts TEXT,
    metadata TEXT
) STRICT;

CREATE INDEX messages_correlation ON messages (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TABLE entries (
    -- agent << 32 | place in the agent's log.
    id INTEGER PRIMARY KEY,
    -- A delivery names its message; every other event is JSON.
    message_id INTEGER,
    priority INTEGER,
    delivered_at INTEGER,
    read_at INTEGER,
    lease_until INTEGER,
    event TEXT,
    -- Of events other than deliveries, for pruning them.
    at INTEGER
) STRICT;

CREATE INDEX entries_unread ON entries (priority, id) WHERE message_id IS NOT NULL AND read_at IS NULL;
CREATE INDEX entries_prunable ON entries (at) WHERE message_id IS NULL;

CREATE TABLE idempotency (
    agent_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    draft_hash BLOB NOT NULL,
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_created ON idempotency (created_at);
