"""The part of pycaffe that scripts use."""
