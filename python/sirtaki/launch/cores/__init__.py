"""Processors and their shares: which rank of a host computes where, and in what memory."""
