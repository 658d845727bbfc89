"""An HTML page about a learned density: its problem, figures, error bounds, training and use.

All numbers are stored in the density; only the figures are computed here. All text is escaped, so
that a model file cannot insert markup. The page forbids scripts and external requests.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..density.description import BOUNDS, ERRORS, cells, problem_facts, training_facts
from ..density.learned import LearnedDensity
from ..density.model_file import header_of
from ..density.summary import described, landmarks, split
from ..training.state import Status
from ..transition.transition_density import AbstractTransitionDensity
from .axes import EXACT, LEARNED, SOURCE
from .densities import joint, lines, planes, section, spread
from .over_time import certificate_over_time, error_over_time, training_history
from .pairs import pairs

# Fractions of the horizon at which densities are shown.
_SHARES = (0.03, 0.3, 1.0)
# The template of the page and its style.
_FILES = ("report.html", "report.css")
# Width in inches that fits on a phone.
_NARROW = 6.0
# Colours that adapt to a light or dark theme.
_INK = {EXACT: "currentColor", LEARNED: "var(--learned)", SOURCE: "var(--source)"}

Drawn = dict[str, tuple[Figure, str]]  # figures with their captions, by name


def report(
    density: LearnedDensity,
    exact: AbstractTransitionDensity | None = None,
    *,
    file: str = "model.dflow",
    path: str | os.PathLike | None = None,
) -> str:
    """Return a self-contained HTML page, without scripts and external requests.

    **Arguments:**

    - `density`: a learned density. Its stored errors and certificate are shown.
    - `exact`: the exact density, drawn for comparison.
    - `file`: name of the model file, used in the instructions for loading it.
    - `path`: if given, the page is also written to this file.

    **Returns:**

    The page as text.
    """
    return written_report(density, drawn_figures(density, exact), file, path)


def written_report(
    density: LearnedDensity, drawn: Drawn, file: str, path: str | os.PathLike | None
) -> str:
    """Return the page about a density with figures that are already drawn."""
    origin = density.sde.origin
    name = "your SDE" if origin is None else f"the built-in model {origin[0]}"
    header = header_of(density)
    blocks = [*_head(density, file, name), *_learned(density, header), *_densities(density, drawn)]
    blocks += [*_trust(density, drawn), *_training(density, header, drawn)]
    return page(name, [*blocks, *_loading(density, file)], path)


def page(name: str, blocks: Iterable[str], path: str | os.PathLike | None) -> str:
    """Return a page of some elements, and write it to a file if a path is given."""
    template, look = (files(__package__).joinpath(n).read_text("utf-8") for n in _FILES)
    text = template.format(name=escape(name), look=look, body="\n".join(blocks))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _head(density: LearnedDensity, file: str, name: str) -> Iterator[str]:
    status, asked = density.status, density.provenance.plan.horizon
    yield element("h1", f"Transition density of {name}")
    yield element("p", f"{file}, learned by diracflow", "soft")
    if status is Status.FINISHED:
        reached = f"Learned up to t = {density.horizon:g}, as requested."
        if density.reach < density.horizon:
            reached += f" Its flow was trained up to t = {density.reach:g}."
        yield element("p", reached, "good")
    else:
        reached = f"{status.name}: learned up to t = {density.horizon:g} of {asked:g}."
        yield element("p", reached, "bad")
        yield element("p", status.value)


def _learned(density: LearnedDensity, header: dict[str, Any]) -> Iterator[str]:
    yield element("h2", "Problem")
    bounds, errors = density.provenance.certificate, density.provenance.errors
    rows = problem_facts(header)
    if bounds:
        last = [row for row in bounds if row["t"] == bounds[-1]["t"]]
        words = (f"{r['bound'] + 3 * r['stderr']:.1e} from the {r['start']}" for r in last)
        rows["upper bound on the total variation"] = ", ".join(words)
    if errors:
        worst = max(row["squared_l2"] for row in errors)
        rows["relative squared L2 error"] = f"at most {worst:.1e}, mean over starts"
    yield definitions(rows)
    for name, text in header["sde"]["text"].items():
        yield element("p", f"{name}, as written:", "soft")
        yield element("pre", text)


def drawn_figures(density: LearnedDensity, exact: AbstractTransitionDensity | None) -> Drawn:
    """Return all figures that apply to a density, with their captions."""
    drawn: Drawn = {}
    if density.horizon > 0:
        drawn |= _density_figures(density, exact)
    if density.provenance.certificate:
        drawn["certificate"] = certificate_over_time(density), "The certificate over time."
    if density.provenance.errors:
        caption = "Error against the exact density over time."
        drawn["error"] = error_over_time(density.provenance.errors), caption
    if len(density.provenance.history) > 1:
        caption = "Residuals and steps over the course of the training."
        drawn["training"] = training_history(density), caption
    return drawn


def _density_figures(density: LearnedDensity, exact: AbstractTransitionDensity | None) -> Drawn:
    x0, conditioning = split(density, landmarks(density.scope.law)["centre"])
    end, few = density.horizon, density.dim <= 6
    times, drawn = [share * end for share in _SHARES], {}
    if density.dim == 1:
        caption = "The density of the state at three times"
        caption += "." if exact is None else ", with the exact density."
        drawn["density"] = lines(density, exact, times, x0, **conditioning), caption
    elif density.dim == 2:
        caption = "The joint density at three times."
        drawn["density"] = planes(density, times, x0, **conditioning), caption
    else:
        shown = "Components" if few else "The first six components"
        caption = f"{shown} at the horizon and their pairs, from 20000 draws."
        drawn["density"] = pairs(density, exact, end, x0, **conditioning), caption
    if density.dim == 2 and exact is not None:
        caption = "Exact, learned, and their difference at the horizon."
        drawn["joint"] = joint(density, exact, end, x0[None], **conditioning), caption
    zero_inside = all(low < 0 < high for low, high in (part.ends for part in density.domain[2:]))
    if density.dim > 2 and exact is not None and zero_inside:
        caption = "A section at the horizon, with all other components zero."
        drawn["section"] = section(density, exact, end, x0, **conditioning), caption
    shown = "every component" if few else "the first six components"
    caption = f"Quantiles of {shown} over time, from 2000 draws."
    return {**drawn, "spread": (spread(density, x0, **conditioning), caption)}


def _pictures(drawn: Drawn, *names: str) -> str:
    return "".join(picture(name, *drawn[name]) for name in names if name in drawn)


def _densities(density: LearnedDensity, drawn: Drawn) -> Iterator[str]:
    if density.horizon > 0:
        start = described(density, landmarks(density.scope.law)["centre"])
        yield element("h2", "Densities over time")
        yield element("p", f"From the centre of the start law, {_start_text(start)}.")
        yield _pictures(drawn, "density", "joint", "section", "spread")


def _trust(density: LearnedDensity, drawn: Drawn) -> Iterator[str]:
    bounds, errors = density.provenance.certificate, density.provenance.errors
    yield element("h2", "Accuracy")
    if not bounds and not errors:
        yield element("p", "No certificate was computed. Use diracflow check or diracflow report.")
        return
    yield f'<div class="pair">{_pictures(drawn, "certificate", "error")}</div>'
    if bounds:
        yield element(
            "p",
            "Total variation: a probability computed with this density differs from the true one "
            "by at most the bound, up to three standard errors.",
        )
        yield table(*cells(BOUNDS, bounds))
        for row in {r["start"]: r for r in bounds if "x0" in r}.values():
            yield element("p", f"{row['start']}: {_start_text(row)}", "soft")
    if errors:
        yield element("p", "Errors against the exact density, averaged over random starts:")
        yield table(*cells(ERRORS, errors))


def _training(density: LearnedDensity, header: dict[str, Any], drawn: Drawn) -> Iterator[str]:
    plan = density.provenance.plan
    yield element("h2", "Training")
    yield definitions(training_facts(header))
    yield _pictures(drawn, "training")
    yield element("h2", "Plan")
    choices = {name: value for name, value in plan.describe().items() if name != "reasons"}
    rows = [(name, value, plan.reasons.get(name, "")) for name, value in choices.items()]
    yield table(("choice", "value", "reason, if automatic"), *rows)


def _loading(density: LearnedDensity, file: str) -> Iterator[str]:
    yield element("h2", "Loading the model")
    own = density.sde.origin is None
    centre = described(density, landmarks(density.scope.law)["centre"])
    # Rounded to significant digits: no value becomes zero, an end of a domain.
    x0 = [float(f"{value:.4g}") for value in centre.pop("x0")]
    params = {n: float(f"{v:.4g}") for n, v in centre.pop("params", {}).items()}
    time = centre.pop("start_time", None)
    keywords = f", params={params}" if params else ""
    keywords += "" if time is None else f", start_time={time:.4g}"
    t = f"{density.horizon / 2:.4g}"  # the horizon itself could be rounded upwards
    lines_ = [
        "import jax",
        "import diracflow as df",
        "",
        *(["# `sde` is your equation; model files do not contain it."] if own else []),
        f"density = df.load({file!r}{', sde=sde' if own else ''})",
        f"density.log_prob({x0}, {t}, {x0}{keywords})",
        f"density.sample(jax.random.key(0), {t}, {x0}, shape=(1000,){keywords})",
        f"density.certificate(jax.random.key(1), {t}, {x0}{keywords})",
    ]
    yield element("pre", "\n".join(lines_))


def _start_text(row: Mapping[str, Any]) -> str:
    start = f"x0 = ({', '.join(f'{value:.3g}' for value in row['x0'])})"
    params = [f"{name} = {value:.3g}" for name, value in row.get("params", {}).items()]
    time = [f"start time {row['start_time']:.3g}"] if "start_time" in row else []
    return ", ".join([start, *params, *time])


def element(name: str, text: object, kind: str | None = None) -> str:
    """Return an element that contains text, with the class `kind`."""
    chosen = "" if kind is None else f' class="{escape(kind)}"'
    return f"<{name}{chosen}>{escape(str(text))}</{name}>"


def definitions(pairs: Mapping[str, object]) -> str:
    """Return a list of names with their values."""
    rows = "".join(element("dt", name) + element("dd", value) for name, value in pairs.items())
    return f"<dl>{rows}</dl>"


def table(headings: Sequence[str], *rows: Sequence[object]) -> str:
    """Return a table; all columns but the first hold numbers."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    lines = ["".join(element("td", cell) for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    # Wide tables scroll on a phone; `tabindex` makes them reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def picture(name: str, drawn: Figure, caption: str) -> str:
    """Return a figure as inline SVG; `name` makes its identifiers unique on the page."""
    buffer = io.StringIO()
    # Without a date equal figures give equal files.
    drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    _, start, svg = buffer.getvalue().partition("<svg ")
    svg = re.sub(r"<metadata>.*?</metadata>", "", start + svg, flags=re.DOTALL)
    # Other figures on the page use the same identifiers.
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, ink in _INK.items():
        svg = svg.replace(colour, ink)
    # Matplotlib writes no colour for text, which would stay black in a dark theme.
    label = f'<svg role="img" aria-label="{escape(caption)}" fill="currentColor" '
    svg = svg.replace("<svg ", label, 1)
    # On a phone wide figures scroll, because they would not be legible if they shrank.
    kind = ' class="wide" tabindex="0"' if drawn.get_figwidth() > _NARROW else ""
    return f"<figure{kind}>{svg}{element('figcaption', caption)}</figure>"
