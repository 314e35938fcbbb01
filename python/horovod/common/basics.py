"""Lifecycle and topology as the methods of one object."""

from sirtaki.core.basics import HorovodBasics
