"""What the site needs beyond Markdown: MathML, pages from elsewhere, notebooks that are run.

MathML is text that browsers draw themselves: no script, no font and no request.
"""

import html
import logging
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
from notebook_pages import page

_LOG = logging.getLogger("mkdocs.hooks.formulas")
# Pages of the site, and where they are kept.
_OUTSIDE = {
    "benchmarks.md": "benchmarks/README.md",
    "experiments.md": "experiments/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)
# Spaces that the converter does not set: about the name of a function; and none beside a bar.
_NAME = r"<m[io]>(?:log|exp|sin|cos|tanh|arcsin|diag)</m[io]>"
_AFTER = re.compile(rf"({_NAME})(?=<m(?:i|sub|sup|frac|sqrt)\b)")
_BEFORE = re.compile(rf"(</(?:mi|mn|msub|msup|mfrac)>)(?={_NAME})")
_SPACE = r'\1<mspace width="0.17em"></mspace>'
_BAR = "<mo>&#x0007C;</mo>"
# What it does not know, and the same said otherwise.
_SPELLING = {r"\arg": r"\mathrm{arg}\,"}


def on_files(files, config):
    root = Path(config.config_file_path).parent
    for name, path in _OUTSIDE.items():
        text = (root / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_inwards(text)))
    for path in sorted((root / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, f"examples/{path.name}", content=text))
    for path in sorted((root / "docs" / "notebooks").glob("*.ipynb")):
        _LOG.info("Running %s", path.name)
        found = page(path)
        for name, content in {f"{path.stem}.md": found.text, **found.pictures}.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    return _inwards(markdown, page.file.src_uri.count("/"))


def on_page_content(content, page, config, files):
    return _FORMULA.sub(lambda found: _mathml(found, page.file.src_uri), content)


def _inwards(text, depth=0):
    """Links between the repository's folders, as links between pages of the site."""
    up = "../" * depth
    for name, path in _OUTSIDE.items():
        text = text.replace(f"](../{up}{path}", f"]({up}{name}").replace(f"]({path}", f"]({name}")
    return text.replace("](../examples/", "](examples/").replace("](../docs/", "](")


def _mathml(found, page):
    latex = html.unescape(found[3]).strip()
    for word, other in _SPELLING.items():
        latex = re.sub(re.escape(word) + r"(?![a-zA-Z])", lambda _, o=other: o, latex)
    try:
        mathml = convert(latex, display="block" if found[2] == "[" else "inline")
    except Exception as error:
        _LOG.warning("%s: no MathML for %r: %s", page, latex, error)
        return found[0]
    if "\\" in html.unescape(mathml):
        _LOG.warning("%s: an unknown command in %r", page, latex)
    mathml = mathml.replace(_BAR, '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>')
    return _BEFORE.sub(_SPACE, _AFTER.sub(_SPACE, mathml))
