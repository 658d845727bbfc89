"""An HTML page about a learned density: its problem, figures, error bounds, training and use.

All numbers are stored in the density; only the figures are computed here.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..density.formatting import ends_in_words, in_words, residuals_in_words
from ..density.learned import LearnedDensity
from ..density.summary import described, equation_text, landmarks, split
from ..training.state import Status
from ..transition.transition_density import AbstractTransitionDensity
from .densities import joint, section
from .histories import certificate_over_time, error_over_time, training_history
from .lines import lines, planes, spread
from .page import code, definitions, element, page, picture, table
from .pairs import pairs

# Fractions of the horizon at which densities are shown.
SHARES = (0.03, 0.3, 1.0)


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
    blocks = [*_head(density, file), *_learned(density), *_densities(density, exact)]
    blocks += [*_trust(density), *_training(density), *_loading(density, file)]
    text = page(f"{_name(density)}: diracflow report", blocks)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _head(density: LearnedDensity, file: str) -> Iterator[str]:
    status, asked = density.status, density.provenance.plan.horizon
    yield element("h1", f"Transition density of {_name(density)}")
    yield element("p", f"{file}, learned by diracflow", "soft")
    if status is Status.FINISHED:
        divided = (
            f" Its flow was trained up to t = {density.reach:g}."
            if density.reach < density.horizon
            else ""
        )
        reached = f"Learned up to t = {density.horizon:g}, as requested.{divided}"
        yield element("p", reached, "good")
    else:
        reached = f"{status.name}: learned up to t = {density.horizon:g} of {asked:g}."
        yield element("p", reached, "bad")
        yield element("p", status.value)


def _learned(density: LearnedDensity) -> Iterator[str]:
    yield element("h2", "Problem")
    noise = density.sde.noise_dim
    pairs: dict[str, object] = {
        "state": f"{density.dim} component{_s(density.dim)}, {noise} noise column{_s(noise)}",
        **_domain(density),
        "start law": in_words(density.starts.describe()),
        **{f"parameter {n}": in_words(law.describe()) for n, law in density.scope.named.items()},
        "start time": _start_time(density),
        "horizon": f"{density.horizon:g}",
        **_judgement(density),
    }
    yield definitions(pairs)
    for name, text in equation_text(density.sde).items():
        yield element("p", f"{name}, as written:", "soft")
        yield code(text)


def _densities(density: LearnedDensity, exact: AbstractTransitionDensity | None) -> Iterator[str]:
    if density.horizon <= 0:
        return
    centre = landmarks(density.scope.law)["centre"]
    x0, conditioning = split(density, centre)
    yield element("h2", "Densities over time")
    others = {n: v for n, v in described(density, centre).items() if n != "x0"}
    yield element("p", f"From the centre of the start law, {_start_text(x0, others)}.")
    times = [share * density.horizon for share in SHARES]
    compared = "" if exact is None else ", with the exact density"
    if density.dim == 1:
        drawn = lines(density, exact, times, x0, **conditioning)
        yield picture("lines", drawn, f"The density of the state at three times{compared}.")
    elif density.dim == 2:
        drawn = planes(density, times, x0, **conditioning)
        yield picture("planes", drawn, "The joint density at three times.")
    if density.dim == 2 and exact is not None:
        drawn = joint(density, exact, density.horizon, x0[None], **conditioning)
        yield picture("joint", drawn, "Exact, learned, and their difference at the horizon.")
    if density.dim > 2:
        yield from _many(density, exact, x0, conditioning)
    shown = "every component" if density.dim <= 6 else "the first six components"
    drawn = spread(density, x0, **conditioning)
    yield picture("spread", drawn, f"Quantiles of {shown} over time, from 2000 draws.")


def _many(
    density: LearnedDensity,
    exact: AbstractTransitionDensity | None,
    x0: np.ndarray,
    conditioning: dict[str, Any],
) -> Iterator[str]:
    """Yield the figures of a density with more than two components."""
    end = density.horizon
    few = "Components" if density.dim <= 6 else "The first six components"
    caption = f"{few} at the horizon and their pairs, from 20000 draws."
    yield picture("pairs", pairs(density, exact, end, x0, **conditioning), caption)
    ends = [part.ends for part in density.domain[2:]]
    if exact is not None and all(low < 0 < high for low, high in ends):
        drawn = section(density, exact, end, x0, **conditioning)
        yield picture("section", drawn, "A section at the horizon, with all other components zero.")


def _trust(density: LearnedDensity) -> Iterator[str]:
    bounds, errors = density.provenance.certificate, density.provenance.errors
    yield element("h2", "Accuracy")
    if not bounds and not errors:
        yield element("p", "No certificate was computed. Use diracflow check or diracflow report.")
        return
    drawn = []
    if bounds:
        caption = "The certificate over time."
        drawn.append(picture("certificate", certificate_over_time(density), caption))
    if errors:
        caption = "Error against the exact density over time."
        drawn.append(picture("error", error_over_time(errors), caption))
    yield f'<div class="pair">{"".join(drawn)}</div>'
    if bounds:
        yield element(
            "p",
            "Total variation: a probability computed with this density differs from the true one "
            "by at most the bound, up to three standard errors.",
        )
        rows = [
            (f"{r['t']:.3g}", r["start"], f"{r['bound']:.1e}", f"{r['stderr']:.0e}") for r in bounds
        ]
        yield table(("t", "start", "bound", "standard error"), rows)
        for row in {r["start"]: r for r in bounds if "x0" in r}.values():
            yield element("p", f"{row['start']}: {_start_text(row['x0'], row)}", "soft")
    if errors:
        yield element("p", "Errors against the exact density, averaged over random starts:")
        fields = ("squared_l2", "source_squared_l2", "kl", "total_variation")
        yield table(
            ("t", "relative squared L2", "source alone", "KL (nats)", "total variation"),
            [(f"{r['t']:.3g}", *(f"{r[field]:.1e}" for field in fields)) for r in errors],
        )


def _training(density: LearnedDensity) -> Iterator[str]:
    provenance = density.provenance
    yield element("h2", "Training")
    steps = len(provenance.history)
    rejected = sum(record.rejected for record in provenance.history)
    each = f", {provenance.seconds / steps:.2g} s per step" if steps else ""
    held_out = [record.fresh_residual for record in provenance.history]
    plan = provenance.plan
    versions = ", ".join(f"{n} {v}" for n, v in provenance.versions.items())
    yield definitions(
        {
            "steps": f"{steps} accepted, {rejected} rejected",
            "time": f"{provenance.seconds:.1f} s{each}",
            "parameters": density.trajectory.thetas.shape[1],
            "held-out residual": residuals_in_words(held_out),
            "preset": plan.preset,
            "random key": list(provenance.key),
            "versions": versions or "not recorded",
        }
    )
    if steps > 1:
        caption = "Residuals and steps over the course of the training."
        yield picture("training", training_history(density), caption)
    yield element("h2", "Plan")
    choices = {name: value for name, value in plan.describe().items() if name != "reasons"}
    rows = [(n, _number(v), plan.reasons.get(n, "")) for n, v in choices.items()]
    yield table(("choice", "value", "reason, if automatic"), rows)


def _loading(density: LearnedDensity, file: str) -> Iterator[str]:
    yield element("h2", "Loading the model")
    own = density.sde.origin is None
    centre = described(density, landmarks(density.scope.law)["centre"])
    x0 = [_short(value) for value in centre.pop("x0")]
    params = {n: _short(v) for n, v in centre.pop("params", {}).items()}
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
    yield code("\n".join(lines_))


def _name(density: LearnedDensity) -> str:
    origin = density.sde.origin
    return "your SDE" if origin is None else f"the built-in model {origin[0]}"


def _domain(density: LearnedDensity) -> dict[str, object]:
    if all(part.describe()["domain"] == "Real" for part in density.sde.domain):
        return {}
    maps = " × ".join(in_words(part.describe()) for part in density.chart.maps)
    return {
        "domain": maps,
        "its ends": ends_in_words(density.provenance.boundaries) or "not tested",
    }


def _start_time(density: LearnedDensity) -> str:
    law = density.scope.start_times
    return f"{density.start_time:g}" if law is None else in_words(law.describe())


def _judgement(density: LearnedDensity) -> dict[str, object]:
    """Return the certificate and the error at the horizon, one line each."""
    bounds, errors = density.provenance.certificate, density.provenance.errors
    lines_: dict[str, object] = {}
    if bounds:
        last = [row for row in bounds if row["t"] == bounds[-1]["t"]]
        words = (f"{r['bound'] + 3 * r['stderr']:.1e} from the {r['start']}" for r in last)
        lines_["upper bound on the total variation"] = ", ".join(words)
    if errors:
        worst = max(row["squared_l2"] for row in errors)
        lines_["relative squared L2 error"] = f"at most {worst:.1e}, mean over starts"
    return lines_


def _start_text(x0: Sequence[float] | np.ndarray, others: Mapping[str, Any]) -> str:
    start = f"x0 = ({', '.join(f'{value:.3g}' for value in x0)})"
    params = [f"{name} = {value:.3g}" for name, value in others.get("params", {}).items()]
    time = [f"start time {others['start_time']:.3g}"] if "start_time" in others else []
    return ", ".join([start, *params, *time])


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(value: float) -> float:
    """Round to four significant digits, so that no value becomes zero, an end of a domain."""
    return float(f"{value:.4g}")


def _s(count: int) -> str:
    return "" if count == 1 else "s"
