"""The worlds of a process: joined, used and left; their process sets, and what all share."""
