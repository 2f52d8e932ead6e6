"""Tools for the model: who is here, sending messages and tasks, and moving tasks."""

from agent_mailbox.nanobot.tools.agents import MailboxAgents
from agent_mailbox.nanobot.tools.send import MailboxSend
from agent_mailbox.nanobot.tools.task import MailboxTask

__all__ = ["MailboxAgents", "MailboxSend", "MailboxTask"]
