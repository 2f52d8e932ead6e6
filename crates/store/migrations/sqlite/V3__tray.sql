-- Mail that was accepted and is not sorted into its session and its recipient's log yet: the columns of `messages`, in
-- the order in which it came.
CREATE TABLE tray (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL,
    public_id BLOB NOT NULL,
    sender_id INTEGER NOT NULL,
    delivery_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    kind TEXT,
    trace TEXT,
    reply_to BLOB,
    correlation_id TEXT,
    callback TEXT,
    content TEXT NOT NULL,
    parts TEXT,
    metadata TEXT
) STRICT;
