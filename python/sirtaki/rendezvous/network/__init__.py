"""Sockets: how to reach a process, how to listen, how to serve many connections."""
