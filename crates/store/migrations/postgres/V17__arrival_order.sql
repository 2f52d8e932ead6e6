-- Mail in the same tables as in SQLite: a message in `messages`, one row for each recipient in `deliveries`, and what else is in
-- an agent's log in `events`.
--
-- Numbers in logs, which clients keep as their cursors, stay. The id of a message is taken from a sequence while its session is
-- locked, so ids order the messages of a session. Those from before this are in the order of time, and within a session in the
-- order that they had.

CREATE SEQUENCE message_ids;

CREATE TABLE arrived (
    id BIGINT PRIMARY KEY DEFAULT nextval('message_ids'),
    public_id UUID NOT NULL,
    session_id BIGINT NOT NULL,
    sender_id BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    priority SMALLINT NOT NULL,
    ttl SMALLINT NOT NULL,
    -- NULL for a plain message.
    kind TEXT,
    -- NULL where it is the sender alone.
    trace TEXT,
    reply_to UUID,
    correlation_id TEXT,
    task TEXT,
    callback TEXT,
    content TEXT NOT NULL,
    -- NULL where the content is one text.
    parts TEXT,
    metadata TEXT
);

INSERT INTO arrived
SELECT row_number() OVER (ORDER BY reached, session_id, seq), public_id, session_id, sender_id, created_at, priority, ttl, kind,
       trace, reply_to, correlation_id, task, callback, content, parts, metadata
FROM (SELECT m.*, max(created_at) OVER (PARTITION BY session_id ORDER BY seq) AS reached FROM messages m) m;
SELECT setval('message_ids', (SELECT coalesce(max(id), 0) + 1 FROM arrived), FALSE);
CREATE UNIQUE INDEX messages_public_id ON arrived (public_id);

-- One row for each recipient of a message: one or none between two agents, several in a group.
CREATE TABLE deliveries (
    message_id BIGINT NOT NULL,
    agent_id BIGINT NOT NULL,
    -- The place in the agent's log, which it shares with `events`.
    number BIGINT NOT NULL,
    priority SMALLINT NOT NULL,
    delivered_at TIMESTAMPTZ,
    read_at TIMESTAMPTZ,
    lease_until TIMESTAMPTZ,
    rung_at TIMESTAMPTZ,
    -- TRUE where the sender was the person of the recipient's household when the message was sent.
    from_person BOOLEAN,
    PRIMARY KEY (message_id, agent_id)
);

INSERT INTO deliveries
SELECT a.id, e.agent_id, e.number, e.priority, e.delivered_at, e.read_at, e.lease_until, e.rung_at, e.from_person
FROM entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq JOIN arrived a ON a.public_id = m.public_id
ORDER BY a.id, e.agent_id;

CREATE TABLE events (
    agent_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    event TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (agent_id, number)
);

INSERT INTO events SELECT agent_id, number, event, coalesce(at, now()) FROM entries WHERE session_id IS NULL ORDER BY at;

CREATE TABLE found AS
SELECT a.id AS message_id, w.created_at, w.words, w.subject
FROM search_words w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq JOIN arrived a ON a.public_id = m.public_id;

DROP TABLE search_words;
DROP TABLE copies;
DROP TABLE entries;
DROP TABLE messages;
ALTER TABLE arrived RENAME TO messages;
ALTER INDEX arrived_pkey RENAME TO messages_pkey;
ALTER SEQUENCE message_ids OWNED BY messages.id;
ALTER TABLE sessions DROP COLUMN last_seq;

CREATE INDEX messages_session ON messages (session_id, id);
CREATE INDEX messages_correlation ON messages (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE UNIQUE INDEX deliveries_log ON deliveries (agent_id, number);
CREATE INDEX deliveries_unread ON deliveries (agent_id, priority, number) WHERE read_at IS NULL;
CREATE INDEX deliveries_read ON deliveries (read_at, agent_id, number) WHERE read_at IS NOT NULL;
CREATE INDEX events_at ON events (at);

ALTER TABLE found RENAME TO search_words;
ALTER TABLE search_words ADD PRIMARY KEY (message_id);
ALTER TABLE search_words ALTER created_at SET NOT NULL, ALTER words SET NOT NULL, ALTER subject SET NOT NULL;
CREATE INDEX search_words_words ON search_words USING GIN (words) WITH (gin_pending_list_limit = 256);

-- Sessions are listed by the time of their newest message; those that were moved from SQLite had none noted.
UPDATE sessions s SET last_at = (SELECT m.created_at FROM messages m WHERE m.session_id = s.id ORDER BY m.id DESC LIMIT 1)
WHERE last_at IS NULL;
