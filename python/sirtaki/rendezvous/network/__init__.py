"""Sockets: how to connect to a process, how to listen, how to serve many connections."""
