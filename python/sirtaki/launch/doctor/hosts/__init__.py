"""Several hosts compared: the doctor on each of them, and what lies between them."""
