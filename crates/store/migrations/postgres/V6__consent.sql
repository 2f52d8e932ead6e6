-- A transcript's key belongs to its owner: two agents may each have one of the same key.
ALTER TABLE transcripts DROP CONSTRAINT transcripts_key_key;
CREATE UNIQUE INDEX transcripts_owner_key ON transcripts (owner_id, key);

-- What was shared without a connection, or beyond its end.
DELETE FROM transcript_access x WHERE NOT EXISTS (
    SELECT FROM transcripts t
    JOIN connections c ON c.low_id = least(t.owner_id, x.agent_id) AND c.high_id = greatest(t.owner_id, x.agent_id)
                      AND c.status = 'ACTIVE'
    WHERE t.id = x.transcript_id);

CREATE INDEX transcript_access_agent ON transcript_access (agent_id);

-- Tasks end with the connection that they were given over.
UPDATE tasks t SET state = CASE state WHEN 'pending' THEN 'rejected' ELSE 'failed' END, note = 'the connection has ended'
WHERE state IN ('pending', 'accepted', 'working') AND NOT EXISTS (
    SELECT FROM connections c
    WHERE c.low_id = least(t.owner_id, t.assignee_id) AND c.high_id = greatest(t.owner_id, t.assignee_id)
    AND c.status = 'ACTIVE');

-- Names are compared without case. Not unique: names that differ only in case may have been given before.
CREATE INDEX agents_folded_name ON agents (lower(name));
CREATE INDEX groups_folded_name ON groups (lower(name COLLATE "C"));
