"""`sirtaki predict`: the time of a step on hosts that are not there yet."""
