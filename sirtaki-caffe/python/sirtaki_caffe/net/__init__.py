"""Nets: filtering, automatic splits, building, running."""
