"""Engines that move the data in place of our own transports, chosen by ``SIRTAKI_BACKEND``."""
