"""The agent: one process per host, which starts the workers and sees to their end."""
