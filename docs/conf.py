"""Sphinx settings; `make docs` builds the pages from the installed package."""

import importlib.metadata
import os
import sys
from pathlib import Path

# The directives that draw figures and show what commands print for --help.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# TensorFlow, which is imported for its docstrings, says much on standard error.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# The address of the repository, such as "https://github.com/NAME/sirtaki": with it each page has a
# link by which it is edited. Empty: no such link.
repository = ""
branch = "main"

project = "Sirtaki"
copyright = "the Sirtaki authors"
release = version = importlib.metadata.version("sirtaki")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "tools.figures.page",
]
# A block without a language is no Python.
highlight_language = "text"
# What is copied of a terminal: the commands, without `$` and without what they print.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
exclude_patterns = ["_build", "_static", "_templates"]
myst_heading_anchors = 3
templates_path = ["_templates"]

# `name` in a docstring is code.
default_role = "literal"

html_theme = "furo"
# The theme's own style for dark pages underlines modules, as if they were links.
pygments_dark_style = "github-dark"
html_title = f"Sirtaki {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_favicon = "_static/favicon.svg"
html_theme_options = {"light_logo": "logo-light.svg", "dark_logo": "logo-dark.svg"}
if repository:
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": branch,
        "source_directory": "docs/",
    }

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# What a caller types, not what a default looks like when it is printed.
autodoc_preserve_defaults = True
# `HorovodInternalError` in a docstring has an entry under each framework; all say the same.
suppress_warnings = ["ref.python"]


def skip_numbered_fields(app, what, name, member, skip, options):  # type: ignore[no-untyped-def]
    """Leave out the fields of named tuples: the docstring of the class describes them."""
    return True if str(member.__doc__).startswith("Alias for field number") else None


def setup(app):  # type: ignore[no-untyped-def]
    """Connect what this file adds to Sphinx."""
    app.connect("autodoc-skip-member", skip_numbered_fields)
