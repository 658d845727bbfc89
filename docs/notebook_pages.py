"""Notebooks as pages: their code is run, and outputs and pictures follow each cell."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

# Dots per inch of pictures.
_DPI = 90


class Page(NamedTuple):
    """The Markdown of a notebook that was run, and its pictures by name."""

    text: str
    pictures: dict[str, bytes]


def page(path: Path) -> Page:
    """Run a notebook in its own folder; return it as a page. An exception in a cell is raised."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": path.stem}
    parts, pictures = [], {}
    with contextlib.chdir(path.parent):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(source)
                continue
            text, value = _run(source, names)
            parts.append(f"```python\n{source}\n```")
            if text:
                parts.append(f"```text\n{text}```")
            figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
            figures += [value] if isinstance(value, Figure) and value not in figures else []
            for figure in figures:
                name = f"{path.stem}_{len(pictures)}.png"
                pictures[name] = _png(figure)
                parts.append(f"![Picture]({name})")
            pyplot.close("all")
    where = f"[The notebook]({path.name}) has no outputs; those on this page were computed now."
    return Page("\n\n".join([parts[0], where, *parts[1:]]) + "\n", pictures)


def _run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; return what it prints, with the value of its last line, and that value."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    shown, value = io.StringIO(), None
    with contextlib.redirect_stdout(shown):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            if value is not None and not _drawn(value):
                print(value)
    return shown.getvalue(), value


def _drawn(value: Any) -> bool:
    return any(kind.__module__.startswith("matplotlib.") for kind in type(value).__mro__) or (
        isinstance(value, list) and all(_drawn(part) for part in value)
    )


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight")
    return file.getvalue()
