"""`diracflow filter`: the hidden state behind noisy observations of some components."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

from ..uses.filtering import Filtered, filter
from ..uses.particles import Observe
from .inputs import load_model
from .observed_series import read_series
from .output_paths import require_figure
from .streams import emit
from .tables import as_json, require_kind, state_columns, write_table


def print_filter(
    model: Path,
    data: Path,
    noise: float,
    components: str | None,
    particles: int,
    seed: int,
    given: dict[str, Any],
    out: Path | None,
    figure: Path | None,
    sde: str | None,
    json: bool,
) -> None:
    """Means and quantiles at the times of the file `data`."""
    require_kind(out)
    require_figure(figure)
    density = load_model(model, sde)
    times, observations = read_series(data)
    seen = _components(components, observations.shape[1], density.dim)
    observe = _gaussian(noise, seen)
    found = filter(
        *(jr.key(seed), density, times, observations, observe, particles),
        params=given["params"],
        start=given["start_time"],
    )
    if out is not None:
        write_table(out, _columns(found), _arrays(found))
    if figure is not None:
        from ..view import filter_bands  # needs matplotlib

        shown = np.full((len(times), density.dim), np.nan)
        shown[:, seen] = observations
        filter_bands(found, shown).savefig(figure)
    if json:
        emit(as_json({"log_evidence": found.log_evidence, **_arrays(found)}))
    else:
        emit(f"log-evidence {found.log_evidence:.6g}")


def _components(text: str | None, count: int, dim: int) -> list[int]:
    """Indices of the observed components, counted from one by the user."""
    if text is None:
        chosen = list(range(1, count + 1))
    else:
        try:
            chosen = [int(part) for part in text.split(",")]
        except ValueError:
            raise ValueError(f"`--components` takes numbers such as 1,3; got {text!r}.") from None
    if len(chosen) != count or not all(1 <= c <= dim for c in chosen):
        raise ValueError(
            f"Each of the {count} columns beside the time needs a component between 1 and {dim}; "
            f"got {chosen}. Name them with `--components`."
        )
    return [c - 1 for c in chosen]


def _gaussian(noise: float, seen: list[int]) -> Observe:
    if not 0 < noise < np.inf:
        raise ValueError(f"`--noise` must be a positive standard deviation; got {noise:g}.")

    def observe(x: Array, y: Array) -> Array:
        gaps = (y - x[np.array(seen)]) / noise
        # A component that is missing says nothing.
        return jnp.sum(jnp.where(jnp.isnan(gaps), 0.0, norm.logpdf(gaps) - jnp.log(noise)))

    return observe


def _arrays(found: Filtered) -> dict[str, np.ndarray]:
    names = ("times", "means", "variances", "levels", "quantiles", "effective_shares", "outside")
    return {name: np.asarray(getattr(found, name)) for name in names}


def _columns(found: Filtered) -> dict[str, np.ndarray]:
    columns = {"time": np.asarray(found.times)}
    for name, table in {"mean": found.means, "variance": found.variances}.items():
        columns |= {f"{name}_{c}": v for c, v in state_columns(np.asarray(table)).items()}
    quantiles = np.moveaxis(np.asarray(found.quantiles), 1, 0)
    for level, table in zip(found.levels, quantiles, strict=True):
        columns |= {f"q{level:g}_{c}": v for c, v in state_columns(table).items()}
    return columns
