"""Building blocks of a self-contained HTML page: text, tables, figures.

What comes from files is escaped where it enters, so that a file can put no markup into a page, and
the page itself forbids scripts and outside requests.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from matplotlib.figure import Figure

from .style import EXACT, LEARNED, SOURCE, style

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Inches that a phone shows.
_NARROW = 6.0
# Colours that follow the reader's preference for light or dark.
_INK = {EXACT: "currentColor", LEARNED: "var(--learned)", SOURCE: "var(--source)"}


def page(title: str, body: Iterable[str]) -> str:
    """A whole document; `body` holds blocks made by the functions below."""
    look = files(__package__).joinpath("report.css").read_text("utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{look}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def element(name: str, text: object, kind: str | None = None) -> str:
    """An element that holds text."""
    chosen = "" if kind is None else f' class="{escape(kind)}"'
    return f"<{name}{chosen}>{escape(str(text))}</{name}>"


def code(text: str) -> str:
    """Lines of a program."""
    return f"<pre><code>{escape(text)}</code></pre>"


def facts(pairs: Mapping[str, object]) -> str:
    """Names and what belongs to them."""
    rows = "".join(element("dt", name) + element("dd", value) for name, value in pairs.items())
    return f"<dl>{rows}</dl>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of cells; all but the first column are numbers."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = ["".join(element("td", cell) for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    # Wide tables scroll by themselves on a phone; the keyboard must reach them.
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def picture(name: str, drawn: Figure, caption: str) -> str:
    """A figure as inline SVG; `name` tells its identifiers from those of other figures."""
    svg = _tinted(_renamed(_svg(drawn), name))
    label = f'<svg role="img" aria-label="{escape(caption)}" '
    svg = svg.replace("<svg ", label, 1)
    # On a phone wide figures scroll rather than shrink beyond reading; the keyboard reaches them.
    kind = ' class="wide" tabindex="0"' if drawn.get_figwidth() > _NARROW else ""
    return f"<figure{kind}>{svg}{element('figcaption', caption)}</figure>"


def _svg(drawn: Figure) -> str:
    with style():
        buffer = io.StringIO()
        # Without a date equal figures are equal files.
        drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def _renamed(svg: str, name: str) -> str:
    """Identifiers are those of one page, in which other figures have the same."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def _tinted(svg: str) -> str:
    for colour, ink in _INK.items():
        svg = svg.replace(colour, ink)
    # Matplotlib writes no colour for text, which is then black.
    return svg.replace("<svg ", '<svg fill="currentColor" ', 1)
