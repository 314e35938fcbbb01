"""What Horovod's modules for the frameworks have in common."""
