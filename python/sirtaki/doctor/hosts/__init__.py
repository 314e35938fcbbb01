"""Compares several hosts: the doctor on each of them, and the network between them."""
