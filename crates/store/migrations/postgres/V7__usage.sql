-- What each agent has stored: its messages, each as often as the agents it went to, and its lines of transcripts.
CREATE TABLE usage (
    agent_id BIGINT PRIMARY KEY,
    messages BIGINT NOT NULL,
    bytes BIGINT NOT NULL
) WITH (fillfactor = 50);

-- The rejection that the office wrote in the name of a task's assignee is charged to the task's sender: its own message went to
-- nobody.
INSERT INTO usage (agent_id, messages, bytes)
SELECT payer, sum(copies), sum(bytes) FROM (
    SELECT CASE WHEN m.kind = 'task_update' AND EXISTS (
                    SELECT FROM messages n WHERE n.public_id = m.reply_to
                    AND n.recipient_id IS NOT NULL AND n.delivery_number IS NULL)
                THEN m.recipient_id ELSE m.sender_id END AS payer,
           CASE WHEN m.recipient_id IS NULL
                THEN greatest(1, (SELECT count(*) FROM copies c WHERE c.message_public_id = m.public_id))
                ELSE 1 END AS copies,
           octet_length(m.content) + coalesce(octet_length(m.parts), 0) + coalesce(octet_length(m.metadata), 0)
           + coalesce(octet_length(m.callback), 0) AS bytes
    FROM messages m
    UNION ALL
    SELECT author_id, 1, octet_length(line) FROM transcript_lines
) charged GROUP BY payer;
