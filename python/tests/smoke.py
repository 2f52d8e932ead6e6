"""Sends, claims and answers once in the directory that the first argument names; needs nothing but the package."""

import sys

from agent_mailbox import GroupTranscriptStore, Mailbox, MailboxManager, __version__

root = sys.argv[1]
ann, ben = (Mailbox.directory(root, name) for name in ("ann", "ben"))
for mailbox in (ann, ben):
    mailbox.register()
ann.send({"to": "ben", "text": "sort it", "kind": "task", "subject": "Sort"})
task = ben.next(60)
assert task is not None
ben.set_task_state(task["task"]["id"], "completed", "sorted")
update = ann.next(60)
assert update is not None and update["kind"] == "task_update" and ann.ack(update["id"]) == 1
with MailboxManager(root) as manager:
    assert [agent["agent_id"] for agent in manager.list_online_agents()] == ["ann", "ben"]
store = GroupTranscriptStore(root + "/transcripts")
store.append("feishu:oc_1", "user", "hello", "ou_1", "om_1")
assert store.get_recent("feishu:oc_1") == [{"role": "user", "content": "hello", "sender": "ou_1"}]
print(f"agent_mailbox {__version__}: sent, claimed, answered")
