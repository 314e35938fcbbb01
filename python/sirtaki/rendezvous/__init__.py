"""How ranks meet before they have links: a key-value store and the hand-shake of a host."""
