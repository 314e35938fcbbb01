"""The worlds of a process: joining, using and leaving them, process sets, and shared state."""
