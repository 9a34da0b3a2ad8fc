"""How Sphinx makes the site; `docs/build.py` lays its sources out and calls it."""

import html
import importlib.metadata
import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

project = "asyncjax"
author = "the asyncjax authors"
release = importlib.metadata.version("asyncjax")
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["README.md", "site"]
suppress_warnings = [
    "ref.python",  # a type in a signature that two pages name
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
highlight_language = "python"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_theme = "furo"
html_title = f"asyncjax {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def _mathml(node, *, block):
    formula = node.astext().strip()
    for other, known in (("dots", "ldots"), ("textstyle", ""), ("tfrac", "frac"), ("Big", "")):
        formula = re.sub(rf"\\{other}(?![a-z])", rf"\\{known}" if known else "", formula)
    try:
        return latex2mathml.tex2mathml(formula, as_block=block)
    except MathError as error:
        logging.getLogger(__name__).warning("formula %s: %s", formula, error, location=node)
        return f"<code>{html.escape(formula)}</code>"


def _inline_math(writer, node):
    writer.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def _block_math(writer, node):
    writer.body.append(f'<div class="formula">{_mathml(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Formulas are MathML, which browsers draw by themselves: nothing is fetched."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.config.html_math_renderer = "mathml"
