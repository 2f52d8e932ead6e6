-- A transcript's key belongs to its owner: two agents may each have one of the same key.
CREATE TABLE owned_transcripts (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    owner_id INTEGER NOT NULL REFERENCES agents,
    created_at INTEGER NOT NULL,
    UNIQUE (owner_id, key)
) STRICT;
INSERT INTO owned_transcripts (id, key, owner_id, created_at) SELECT id, key, owner_id, created_at FROM transcripts;
DROP TABLE transcripts;
ALTER TABLE owned_transcripts RENAME TO transcripts;

-- What was shared without a connection, or beyond its end.
DELETE FROM transcript_access WHERE NOT EXISTS (
    SELECT 1 FROM transcripts t
    JOIN connections c ON c.low_id = min(t.owner_id, transcript_access.agent_id)
                      AND c.high_id = max(t.owner_id, transcript_access.agent_id) AND c.status = 'ACTIVE'
    WHERE t.id = transcript_access.transcript_id);

CREATE INDEX transcript_access_agent ON transcript_access (agent_id);

-- Tasks end with the connection that they were given over.
UPDATE tasks SET state = iif(state = 'pending', 'rejected', 'failed'), note = 'the connection has ended'
WHERE state IN ('pending', 'accepted', 'working') AND NOT EXISTS (
    SELECT 1 FROM connections c
    WHERE c.low_id = min(tasks.owner_id, tasks.assignee_id) AND c.high_id = max(tasks.owner_id, tasks.assignee_id)
    AND c.status = 'ACTIVE');

-- Names are compared without case. Not unique: names that differ only in case may have been given before.
CREATE INDEX agents_folded_name ON agents (lower(name));
CREATE INDEX groups_folded_name ON groups (lower(name));
