"""Secrets, proofs that a peer knows them, sealed messages and TLS."""
