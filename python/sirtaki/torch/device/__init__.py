"""Collectives on tensors of accelerators, by process groups that PyTorch itself has for them."""
