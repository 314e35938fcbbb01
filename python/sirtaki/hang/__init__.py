"""Explains why a job hangs: asks its ranks, compares their answers, and prints a short report."""
