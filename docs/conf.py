"""Sphinx settings: ``make docs`` builds the pages and fails on any warning."""

import importlib.metadata
import importlib.resources
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "pymc_dp"
author = "the pymc_dp authors"
copyright = author
version = release = importlib.metadata.version("pymc-dp")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinxcontrib.bibtex",
    "sphinx_design",
    "numpydoc",
    "myst_nb",
    "public_names",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_dp"
# formulas show without a network: the package's files are copied to where mathjax_path points
MATHJAX = importlib.resources.files("sphinx-mathjax-offline") / "static"
mathjax_path = "mathjax/tex-chtml.js"
html_static_path = ["_static", str(MATHJAX)]
html_css_files = ["layout.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navigation_depth": 2,
    "show_toc_level": 1,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# a page without sections below it has nothing to show on its left
html_sidebars = {page: [] for page in ("index", "start", "api", "notebooks")}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "py:obj"  # names in docstrings are links
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types
numpydoc_show_class_members = False
nb_execution_mode = "force"
nb_execution_in_temp = True  # pages write ledgers and results
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"
nb_merge_streams = True

# the notebooks live beside the docs; Sphinx reads what is below this folder alone
GENERATED = HERE / "generated"
shutil.rmtree(GENERATED, ignore_errors=True)  # pages of names that are gone would count as listed
NOTEBOOKS = GENERATED / "notebooks"
NOTEBOOKS.mkdir(parents=True)
for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    shutil.copy2(notebook, NOTEBOOKS)
