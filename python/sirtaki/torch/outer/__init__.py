"""Training with rare exchanges: local steps, and outer steps over all ranks."""
