"""The class that nanobot loads; it lives in ``agent_mailbox.nanobot``."""

from agent_mailbox.nanobot.channel import MailboxChannel

__all__ = ["MailboxChannel"]
