"""Questions to the ranks and the launcher of a running job, and their answers."""
