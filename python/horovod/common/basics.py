"""Lifecycle and topology as methods of one object."""

from sirtaki.core.basics import HorovodBasics
