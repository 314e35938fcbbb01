"""Solvers: learning rates, updates, the loop, snapshots."""
