"""Hosts and slots, their addresses, and the variables that describe a rank's place."""
