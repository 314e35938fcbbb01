"""Starting a job: command lines, hosts, worker processes and their output."""
