-- The time of a session's newest message: messages written by different processes at once are not to go back in time.
ALTER TABLE sessions ADD COLUMN last_at TIMESTAMPTZ;

-- Which tables on which timeline of the server the logs were numbered in. A restored dump has other tables, and a server that
-- was promoted or recovered is on another timeline: both may lack what clients have seen.
ALTER TABLE office ADD COLUMN lineage TEXT;
