"""Programs that start ranks: ssh, mpirun, and those of schedulers."""
