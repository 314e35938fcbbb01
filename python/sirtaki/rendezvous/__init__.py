"""How ranks meet before they have links: a key-value store, and the meeting of a host."""
