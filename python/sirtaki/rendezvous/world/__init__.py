"""A world: its members, the meeting of its ranks, and the records that they exchange."""
