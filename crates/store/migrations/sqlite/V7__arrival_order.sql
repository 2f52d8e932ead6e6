-- Mail in the order in which it arrived, written once. A message, its deliveries and an event are appended; what is found by
-- session, by recipient or by id has a narrow index.
--
-- Numbers that were given stay: `id` of a message (before this: session << 32 | place), and the number of a delivery or
-- event in its agent's log, which clients keep as their cursor. New messages have ids above all of these.

CREATE TABLE arrived (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL,
    session_id INTEGER NOT NULL,
    sender_id INTEGER NOT NULL,
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

-- One row for each recipient of a message: one or none between two agents, several in a group.
CREATE TABLE deliveries (
    message_id INTEGER NOT NULL,
    agent_id INTEGER NOT NULL,
    -- The place in the agent's log, which it shares with `events`.
    number INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    delivered_at INTEGER,
    read_at INTEGER,
    lease_until INTEGER,
    PRIMARY KEY (message_id, agent_id)
) STRICT, WITHOUT ROWID;

-- What else is in an agent's log, as JSON.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    agent_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

INSERT INTO arrived SELECT id, public_id, id >> 32, sender_id, created_at, priority, ttl, kind, trace, reply_to,
                           correlation_id, task, callback, content, parts, metadata
FROM messages ORDER BY id;
-- In the order of messages, so that nothing has to be sorted.
INSERT INTO deliveries
SELECT m.id, e.id >> 32, e.id & 4294967295, e.priority, e.delivered_at, e.read_at, e.lease_until
FROM messages m JOIN entries e ON e.id = m.delivery_id ORDER BY m.id;
INSERT INTO deliveries
SELECT c.message_id, c.agent_id, e.id & 4294967295, e.priority, e.delivered_at, e.read_at, e.lease_until
FROM copies c JOIN entries e ON e.id = c.entry_id ORDER BY c.message_id, c.agent_id;
INSERT INTO events (agent_id, number, event, at)
SELECT id >> 32, id & 4294967295, event, at FROM entries WHERE message_id IS NULL ORDER BY at, id;

-- Mail that was staged and in no other table yet.
CREATE TABLE staged AS SELECT * FROM tray t WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id);
INSERT INTO arrived SELECT message_id, public_id, message_id >> 32, sender_id, created_at, priority, ttl, kind, trace,
                           reply_to, correlation_id, NULL, callback, content, parts, metadata
FROM staged;
INSERT INTO deliveries
SELECT message_id, delivery_id >> 32, delivery_id & 4294967295, priority, NULL, NULL, NULL FROM staged;
UPDATE session_members SET unread = unread + s.count FROM (
    SELECT delivery_id >> 32 AS agent, message_id >> 32 AS session, count(*) AS count FROM staged GROUP BY 1, 2) s
WHERE agent_id = s.agent AND session_id = s.session;
INSERT INTO usage (agent_id, messages, bytes)
SELECT sender_id, count(*), sum(octet_length(content) + ifnull(octet_length(parts), 0) + ifnull(octet_length(metadata), 0)
                                + ifnull(octet_length(callback), 0))
FROM staged WHERE true GROUP BY sender_id
ON CONFLICT (agent_id) DO UPDATE SET messages = messages + excluded.messages, bytes = bytes + excluded.bytes;

DROP TABLE staged;
DROP TABLE tray;
DROP TABLE copies;
DROP TABLE entries;
DROP TABLE messages;
ALTER TABLE arrived RENAME TO messages;

CREATE UNIQUE INDEX messages_public_id ON messages (public_id);
CREATE INDEX messages_session ON messages (session_id, id);
CREATE INDEX messages_correlation ON messages (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE UNIQUE INDEX deliveries_log ON deliveries (agent_id, number);
CREATE INDEX deliveries_unread ON deliveries (agent_id, priority, number) WHERE read_at IS NULL;
CREATE INDEX deliveries_read ON deliveries (read_at, agent_id, number) WHERE read_at IS NOT NULL;
CREATE UNIQUE INDEX events_log ON events (agent_id, number);
CREATE INDEX events_at ON events (at);
