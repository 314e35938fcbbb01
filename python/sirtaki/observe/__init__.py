"""Measurements of collectives and of jobs."""
