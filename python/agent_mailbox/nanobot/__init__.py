"""The mailbox inside nanobot: the channel ``mailbox``, tools for the model, and transcripts of group chats.

Nothing here is imported by ``agent_mailbox`` itself, so that the bindings work without nanobot.
"""
