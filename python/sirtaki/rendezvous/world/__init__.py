"""A world: who is in it, where its ranks meet, and what they tell each other."""
