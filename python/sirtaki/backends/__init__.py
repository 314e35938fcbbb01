"""Backends that move the data in place of Sirtaki's transports, selected by ``SIRTAKI_BACKEND``."""
