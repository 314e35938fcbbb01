"""How a job is started: command lines, hosts, worker processes and their output."""
