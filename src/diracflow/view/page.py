"""Parts of a self-contained HTML page: text, tables, figures.

All text is escaped, so that a model file cannot insert markup. The page forbids scripts and
external requests.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from matplotlib.figure import Figure

from .style import EXACT, LEARNED, SOURCE, style

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Width in inches that fits on a phone.
_NARROW = 6.0
# Colours that adapt to a light or dark theme.
_INK = {EXACT: "currentColor", LEARNED: "var(--learned)", SOURCE: "var(--source)"}


def page(title: str, body: Iterable[str]) -> str:
    """Return the document; `body` holds blocks made by the functions below."""
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
    """Return an element that contains text, with the class `kind`."""
    chosen = "" if kind is None else f' class="{escape(kind)}"'
    return f"<{name}{chosen}>{escape(str(text))}</{name}>"


def code(text: str) -> str:
    """Return a block of program text."""
    return f"<pre><code>{escape(text)}</code></pre>"


def definitions(pairs: Mapping[str, object]) -> str:
    """Return a list of names with their values."""
    rows = "".join(element("dt", name) + element("dd", value) for name, value in pairs.items())
    return f"<dl>{rows}</dl>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; all columns but the first hold numbers."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = ["".join(element("td", cell) for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    # Wide tables scroll on a phone; `tabindex` makes them reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def picture(name: str, drawn: Figure, caption: str) -> str:
    """Return a figure as inline SVG; `name` makes its identifiers unique on the page."""
    svg = _tinted(_renamed(_svg(drawn), name))
    label = f'<svg role="img" aria-label="{escape(caption)}" '
    svg = svg.replace("<svg ", label, 1)
    # On a phone wide figures scroll, because they would not be legible if they shrank.
    kind = ' class="wide" tabindex="0"' if drawn.get_figwidth() > _NARROW else ""
    return f"<figure{kind}>{svg}{element('figcaption', caption)}</figure>"


@style()
def _svg(drawn: Figure) -> str:
    buffer = io.StringIO()
    # Without a date equal figures give equal files.
    drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def _renamed(svg: str, name: str) -> str:
    """Prefix all identifiers with `name`: other figures on the page use the same ones."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def _tinted(svg: str) -> str:
    for colour, ink in _INK.items():
        svg = svg.replace(colour, ink)
    # Matplotlib writes no colour for text, which would stay black in a dark theme.
    return svg.replace("<svg ", '<svg fill="currentColor" ', 1)
