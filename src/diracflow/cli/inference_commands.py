"""The commands `bridge`, `filter` and `infer`, which infer paths, states and parameters from data.

They import JAX when they run, so that `--help` does not wait for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .options import Data, Equation, Figure, Json, QueryOptions, Seed, Start, TableOptions, Time
from .tables import read_series, require_figure, require_writable, state_columns, write_table
from .terminal import emit

if TYPE_CHECKING:
    from jaxtyping import Array, Float  # `Array` imports JAX

    from ..transition.transition_density import AbstractTransitionDensity
    from ..uses.bridges import Bridge
    from ..uses.filtering import Filtered, Observe


def bridge(
    query: QueryOptions,
    t: Time,
    x0: Start,
    x1: Annotated[str, typer.Option("--x1", help="End point: comma-separated numbers.")],
    *,
    steps: Annotated[int, typer.Option(help="Number of time steps of each path.")] = 200,
    paths: Annotated[int, typer.Option(help="Number of paths.")] = 1000,
    seed: Seed = 0,
    figure: Figure = None,
    table: TableOptions,
) -> None:
    """Draw weighted paths between two points."""
    import jax.random as jr

    from ..uses import bridges
    from .inputs import parse_point

    table.check(figure)
    model, conditioning = query.load()
    start, end = parse_point("x0", x0, model.dim), parse_point("x1", x1, model.dim)
    found = bridges.bridge(jr.key(seed), model, start, end, t, steps, paths, **conditioning)
    if table.out is not None:
        write_table(table.out, _path_columns(found), _arrays(found, "paths", "log_weights"))
    if figure is not None:
        from ..view import bridge_fan

        bridge_fan(found).savefig(figure)
    times, mean = np.asarray(found.times), np.asarray(found.mean(lambda path: path))
    deviation = np.sqrt(np.asarray(found.mean(lambda path: (path - mean) ** 2)))
    share, value = found.effective_share, found.log_density
    if table.as_json:
        bands = {"times": times, "means": mean, "deviations": deviation}
        emit({"effective_share": share, "log_density": value, **bands})
        return
    middle = int(np.argmin(np.abs(times - times[-1] / 2)))
    centre, spread = (np.round(values[middle], 4).tolist() for values in (mean, deviation))
    emit(
        f"paths                  {len(found.paths)}\n"
        f"effective sample size  {share:.3f} of the number of paths\n"
        f"log-density            {value:.4f}  at x1, from the path weights\n"
        f"midpoint               mean {centre}, standard deviation {spread}"
    )


def _path_columns(found: "Bridge") -> dict[str, np.ndarray]:
    """Return one row for each path and time."""
    count, instants, dim = found.paths.shape
    return {
        "path": np.repeat(np.arange(count), instants),
        "time": np.tile(np.asarray(found.times), count),
        **state_columns(np.asarray(found.paths).reshape(-1, dim)),
        "log_weight": np.repeat(np.asarray(found.log_weights), instants),
    }


def _arrays(found: Any, *names: str) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(found, name)) for name in ("times", *names)}


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

    table.check(figure)
    model, conditioning = query.load()
    times, observations = read_series(data)
    observed = _components(components, observations.shape[1], model.dim)
    observe = _gaussian_likelihood(noise, observed)
    found = filtering.filter(
        *(jr.key(seed), model, times, observations, observe, particles),
        params=conditioning["params"],
        start=conditioning["start_time"],
    )
    moments = ("means", "variances", "levels", "quantiles")
    arrays = _arrays(found, *moments, "effective_shares", "outside")
    if table.out is not None:
        write_table(table.out, _moment_columns(found), arrays)
    if figure is not None:
        from ..view import filter_bands

        shown = np.full((len(times), model.dim), np.nan)
        shown[:, observed] = observations
        filter_bands(found, shown).savefig(figure)
    if table.as_json:
        emit({"log_evidence": found.log_evidence, **arrays})
    else:
        emit(f"log-evidence {found.log_evidence:.6g}")


def _components(text: str | None, count: int, dim: int) -> list[int]:
    """Return the indices of the observed components; the user counts from one."""
    chosen = list(range(1, count + 1))
    if text is not None:
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


def _moment_columns(found: "Filtered") -> dict[str, np.ndarray]:
    """Return one row for each time."""
    quantiles = np.moveaxis(np.asarray(found.quantiles), 1, 0)
    levels = {f"q{level:g}": q for level, q in zip(found.levels, quantiles, strict=True)}
    columns = {"time": np.asarray(found.times)}
    for name, values in {"mean": found.means, "variance": found.variances, **levels}.items():
        columns |= {f"{name}_{c}": v for c, v in state_columns(np.asarray(values)).items()}
    return columns


def infer(
    model: Annotated[
        str, typer.Argument(help="A model with parameters, or ou or cir for exact densities.")
    ],
    data: Data,
    prior: Annotated[
        str, typer.Option(help='\'{"rate": {"law": "LogNormal", "mean": 0, "std": 1}, ...}\'.')
    ],
    chains: Annotated[int, typer.Option(help="Number of Markov chains.")] = 4,
    draws: Annotated[int, typer.Option(help="Draws per chain.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Warm-up draws per chain, discarded.")] = 1000,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="A NetCDF file.")] = Path("posterior.nc"),
    figure: Figure = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """Sample the posterior of the parameters, given an observed path."""
    import jax.random as jr

    from ..uses import inference
    from .inputs import parse_laws

    if out.suffix != ".nc":
        raise ValueError(f"Posteriors are written as NetCDF, to a file named .nc; got {out}.")
    require_writable(out)
    require_figure(figure)
    density = _density(model, sde)
    times, states = read_series(data, density.dim)
    tree = inference.infer(
        *(jr.key(seed), density, times, states, parse_laws("--prior", prior)),
        chains=chains,
        draws=draws,
        warmup=warmup,
        progress=not as_json,
    )
    tree.to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        from ..view import posterior_pairs

        posterior_pairs(tree).savefig(figure)
    rows = {}
    for name in density.params:
        values = tree["posterior"][name]
        moments = {"mean": values.mean(), "deviation": values.std()}
        rows[name] = {key: float(value) for key, value in (moments | values.attrs).items()}
    if as_json:
        emit(rows)
        return
    for name, row in rows.items():
        emit(f"{name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))
    emit(f"The draws are in {out}.")


def _density(model: str, sde: str | None) -> "AbstractTransitionDensity":
    from ..models.exact_densities import ExactOrnsteinUhlenbeck
    from ..models.square_root import ExactCIR
    from .inputs import load_model, prepare_jax

    exact = {"ou": ExactOrnsteinUhlenbeck, "cir": ExactCIR}
    if model in exact:
        prepare_jax()
        return exact[model]()
    if not Path(model).exists() and not Path(model).suffix:
        raise ValueError(f"No model file at {model}; exact densities are called ou and cir.")
    return load_model(Path(model), sde)[0]
