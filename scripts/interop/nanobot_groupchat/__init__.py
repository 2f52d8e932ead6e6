"""A channel for the test of group chats, put beside nanobot's own for as long as the test runs."""
