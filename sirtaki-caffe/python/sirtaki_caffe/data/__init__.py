"""Where records come from, how they are transformed and fetched ahead."""
