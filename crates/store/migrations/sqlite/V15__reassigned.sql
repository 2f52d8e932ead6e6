-- How often a person gave a task to another agent: each time its owner stores a copy of it.
ALTER TABLE tasks ADD COLUMN reassigned INTEGER NOT NULL DEFAULT 0;
