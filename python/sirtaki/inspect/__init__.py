"""The commands that inspect running and failed jobs."""
