-- Tasks that the office rejected at once are in no log, and were not indexed. Their senders find them.
INSERT INTO search_words (session_id, seq, created_at, words, subject)
SELECT n.session_id, n.seq, n.created_at,
       to_tsvector('simple', left(n.content, 100000)) || to_tsvector('simple', s.subject)
       || array_to_tsvector(ARRAY['@m' || n.sender_id, '@f' || n.sender_id]),
       to_tsvector('simple', s.subject)
FROM messages n JOIN sessions s ON s.id = n.session_id
WHERE n.recipient_id IS NOT NULL AND n.delivery_number IS NULL
ON CONFLICT DO NOTHING;
