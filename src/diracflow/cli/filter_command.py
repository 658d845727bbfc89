"""`diracflow filter`: the hidden state, from noisy observations of some of its components.

JAX is imported when the command runs, so that `--help` does not wait for it.
"""

from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from .data_files import read_series
from .options import Data, Figure, QueryOptions, Seed, TableOptions
from .results import emit_json, require_figure, state_columns, write_table
from .streams import emit

if TYPE_CHECKING:
    from jaxtyping import Array, Float  # `Array` imports JAX

    from ..uses.filtering import Filtered, Observe


def filter(  # the standard term
    query: QueryOptions,
    data: Data,
    noise: Annotated[float, typer.Option(help="Standard deviation of the observation noise.")],
    *,
    components: Annotated[
        str | None, typer.Option(help="Observed components, such as 1,3; default the first ones.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles.")] = 1000,
    seed: Seed = 0,
    figure: Figure = None,
    table: TableOptions,
) -> None:
    """Estimate the hidden state from observations with Gaussian noise."""
    import jax.random as jr

    from ..uses import filtering

    table.check()
    require_figure(figure)
    conditioning, model = query.conditioning(), query.load()
    times, observations = read_series(data)
    observed = _components(components, observations.shape[1], model.dim)
    observe = _gaussian_likelihood(noise, observed)
    found = filtering.filter(
        *(jr.key(seed), model, times, observations, observe, particles),
        params=conditioning["params"],
        start=conditioning["start_time"],
    )
    if table.out is not None:
        write_table(table.out, _columns(found), _arrays(found))
    if figure is not None:
        from ..view import filter_bands

        shown = np.full((len(times), model.dim), np.nan)
        shown[:, observed] = observations
        filter_bands(found, shown).savefig(figure)
    if table.as_json:
        emit_json({"log_evidence": found.log_evidence, **_arrays(found)})
    else:
        emit(f"log-evidence {found.log_evidence:.6g}")


def _components(text: str | None, count: int, dim: int) -> list[int]:
    """Return the indices of the observed components; the user counts from one."""
    if text is None:
        chosen = list(range(1, count + 1))
    else:
        try:
            chosen = [int(part) for part in text.split(",")]
        except ValueError:
            raise ValueError(f"`--components` takes numbers such as 1,3; got {text!r}.") from None
    if len(chosen) != count or not all(1 <= c <= dim for c in chosen):
        raise ValueError(
            f"The data have {count} columns after the time. Give a component between 1 and {dim} "
            f"for each of them with `--components`; got {chosen}."
        )
    return [c - 1 for c in chosen]


def _gaussian_likelihood(noise: float, observed: list[int]) -> "Observe":
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    if not 0 < noise < np.inf:
        raise ValueError(f"`--noise` must be a positive standard deviation; got {noise:g}.")

    def observe(x: "Float[Array, ' d']", y: "Float[Array, ' k']") -> "Float[Array, '']":
        gaps = (y - x[np.array(observed)]) / noise
        # A missing component contributes nothing to the likelihood.
        return jnp.sum(jnp.where(jnp.isnan(gaps), 0.0, norm.logpdf(gaps) - jnp.log(noise)))

    return observe


def _arrays(found: "Filtered") -> dict[str, np.ndarray]:
    names = ("times", "means", "variances", "levels", "quantiles", "effective_shares", "outside")
    return {name: np.asarray(getattr(found, name)) for name in names}


def _columns(found: "Filtered") -> dict[str, np.ndarray]:
    columns = {"time": np.asarray(found.times)}
    for name, table in {"mean": found.means, "variance": found.variances}.items():
        columns |= {f"{name}_{c}": v for c, v in state_columns(np.asarray(table)).items()}
    quantiles = np.moveaxis(np.asarray(found.quantiles), 1, 0)
    for level, table in zip(found.levels, quantiles, strict=True):
        columns |= {f"q{level:g}_{c}": v for c, v in state_columns(table).items()}
    return columns
