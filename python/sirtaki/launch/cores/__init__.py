"""CPU binding: which CPUs and which memory each rank of a host uses."""
