"""Sphinx settings; `make docs` builds the pages from the installed package."""

import importlib.metadata

project = "Sirtaki"
copyright = "the Sirtaki authors"
release = version = importlib.metadata.version("sirtaki")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Sirtaki {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
