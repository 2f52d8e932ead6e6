"""The channel ``mailbox`` of amb-mailbox, in the place where nanobot 0.3 and later look for channels."""
