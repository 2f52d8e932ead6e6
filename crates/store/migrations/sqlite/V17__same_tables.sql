-- The same columns as in PostgreSQL: a task names its message by the id that clients see, a line has its place in a column.
DROP INDEX tasks_message;
ALTER TABLE tasks DROP COLUMN message_id;
CREATE INDEX tasks_message ON tasks (message_public_id);

CREATE TABLE lines (
    transcript_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    author_id INTEGER NOT NULL,
    message_id TEXT,
    line TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (transcript_id, seq)
) STRICT;
INSERT INTO lines SELECT transcript_id, id & 4294967295, author_id, message_id, line, created_at FROM transcript_lines ORDER BY id;
DROP TABLE transcript_lines;
ALTER TABLE lines RENAME TO transcript_lines;
CREATE UNIQUE INDEX transcript_lines_message ON transcript_lines (transcript_id, message_id) WHERE message_id IS NOT NULL;

ALTER TABLE transcripts ADD COLUMN last_seq INTEGER NOT NULL DEFAULT 0;
UPDATE transcripts SET last_seq = coalesce((SELECT max(seq) FROM transcript_lines l WHERE l.transcript_id = transcripts.id), 0);

-- A partial index serves a query that has its condition word for word; PostgreSQL has no number for a boolean.
DROP INDEX tasks_due;
CREATE INDEX tasks_due ON tasks (deadline) WHERE overdue = FALSE AND state IN ('pending', 'accepted', 'working');
DROP INDEX household_tokens_one_owner;
CREATE UNIQUE INDEX household_tokens_one_owner ON household_tokens (household_id) WHERE owner = TRUE;
DROP INDEX agents_one_person;
CREATE UNIQUE INDEX agents_one_person ON agents (household_id) WHERE person = TRUE;
