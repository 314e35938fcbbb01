"""The collectives on tensors of PyTorch."""
