"""Gradients of a model, and the parts of its optimizer that reduce them."""
