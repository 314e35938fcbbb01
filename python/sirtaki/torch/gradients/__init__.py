"""Gradients of a model, and what its optimizer needs to reduce them."""
