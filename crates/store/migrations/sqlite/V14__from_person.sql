-- 1 where the sender was the person of the recipient's household when the message was sent, NULL else. Of what was sent before this
-- column nothing is known: metadata may say anything.
ALTER TABLE deliveries ADD COLUMN from_person INTEGER;
