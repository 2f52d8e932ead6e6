-- What each agent has stored: its messages, each as often as the agents it went to, and its lines of transcripts. Mail that is
-- still in the tray is counted when it is sorted.
CREATE TABLE usage (
    agent_id INTEGER PRIMARY KEY,
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

-- The rejection that the office wrote in the name of a task's assignee is charged to the task's sender: its own message went to
-- nobody.
INSERT INTO usage (agent_id, messages, bytes)
SELECT payer, sum(copies), sum(bytes) FROM (
    SELECT iif(m.kind = 'task_update' AND EXISTS (
                   SELECT 1 FROM messages n WHERE n.public_id = m.reply_to AND n.delivery_id IS NULL),
               m.delivery_id >> 32, m.sender_id) AS payer,
           iif(m.delivery_id IS NULL, max(1, (SELECT count(*) FROM copies c WHERE c.message_id = m.id)), 1) AS copies,
           octet_length(m.content) + ifnull(octet_length(m.parts), 0) + ifnull(octet_length(m.metadata), 0)
           + ifnull(octet_length(m.callback), 0) AS bytes
    FROM messages m
    UNION ALL
    SELECT author_id, 1, octet_length(line) FROM transcript_lines
) GROUP BY payer;
