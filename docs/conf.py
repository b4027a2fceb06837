"""Sphinx settings: ``make docs`` builds the pages and fails on any warning."""

import importlib.metadata
import shutil
from pathlib import Path

HERE = Path(__file__).parent

project = "pymc_dp"
author = "the pymc_dp authors"
copyright = author
version = release = importlib.metadata.version("pymc-dp")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_nb",
]
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types
numpydoc_show_class_members = False
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 90
nb_output_stderr = "remove"

# the notebooks live beside the docs; Sphinx reads what is below this folder alone
NOTEBOOKS = HERE / "generated" / "notebooks"
NOTEBOOKS.mkdir(parents=True, exist_ok=True)
for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    shutil.copy(notebook, NOTEBOOKS)
