"""The channel ``mailbox`` of agent-mailbox, in the place where nanobot 0.3 and later look for channels."""
