"""Seeing what happens: measuring collectives."""
