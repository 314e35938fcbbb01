"""Hosts and slots, their addresses, and the variables that tell a rank its place."""
