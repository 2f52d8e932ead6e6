-- What a household's person does to its agents, their conversations and their tasks; by whom, as a name.
ALTER TABLE agents ADD COLUMN paused_at TIMESTAMPTZ;
ALTER TABLE agents ADD COLUMN paused_by TEXT;
-- The last number of its log that a paused agent is shown: the entry that tells it of the pause.
ALTER TABLE agents ADD COLUMN paused_from BIGINT;
ALTER TABLE sessions ADD COLUMN ended_at TIMESTAMPTZ;
ALTER TABLE sessions ADD COLUMN ended_by TEXT;
ALTER TABLE tasks ADD COLUMN canceled_by TEXT;
