-- When a client of the recipient's was first rung for a message, for its sender to see.
ALTER TABLE deliveries ADD COLUMN rung_at INTEGER;
