"""The shared parts of Horovod's modules for frameworks."""
