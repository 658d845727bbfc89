"""The commands that estimate hidden states from a series. They import JAX when they run."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from jaxtyping import Float

from .options import Components, Data, Figure, Json, NetCDF, QueryOptions, Seed, TableOptions
from .tables import (
    read_series,
    require_figure,
    require_netcdf,
    require_writable,
    state_columns,
    write_table,
)
from .terminal import emit

if TYPE_CHECKING:
    from jaxtyping import Array  # which imports JAX

    from ..hidden.guided_jumps import Observe


class Seen(NamedTuple):
    """The observed part of the state."""

    components: list[int]
    observe: "Observe"
    states: Float[np.ndarray, "n d"]  # NaN where they are not observed


@dataclasses.dataclass(frozen=True)
class SeriesOptions:
    """Observations with Gaussian noise, and the particles and the seed of their filter."""

    data: Data
    noise: Annotated[float, typer.Option(help="Standard deviation of the observation noise.")]
    components: Components = None
    particles: Annotated[int, typer.Option(help="Number of particles.")] = 1000
    seed: Seed = 0

    def seen(self, observations: Float[np.ndarray, "n k"], dim: int) -> Seen:
        """Return what the observations show of a state with `dim` components."""
        observed = observed_components(self.components, observations.shape[1], dim)
        states = np.full((len(observations), dim), np.nan)
        states[:, observed] = observations
        return Seen(observed, gaussian_likelihood("--noise", self.noise, observed), states)


def filter(  # the standard term
    query: QueryOptions, series: SeriesOptions, *, figure: Figure = None, table: TableOptions
) -> None:
    """Estimate the hidden state from observations with Gaussian noise."""
    import jax.random as jr

    from ..hidden import filtering

    table.check(figure)
    model, conditioning = query.load()
    times, observations = read_series(series.data)
    seen = series.seen(observations, model.dim)
    found = filtering.filter(
        *(jr.key(series.seed), model, times, observations, seen.observe, series.particles),
        params=conditioning["params"],
        start=conditioning["start_time"],
    )
    arrays = _arrays(found, "effective_shares", "outside")
    if table.out is not None:
        columns = {"time": arrays["times"]}
        parts = {"mean": arrays["means"], "variance": arrays["variances"]}
        for index, level in enumerate(found.levels):
            parts[f"q{level:g}"] = arrays["quantiles"][:, index]
        for name, part in parts.items():
            columns |= {f"{name}_{c}": values for c, values in state_columns(part).items()}
        write_table(table.out, columns, arrays)
    if figure is not None:
        from ..view import filter_bands

        filter_bands(found, seen.states).savefig(figure)
    if table.as_json:
        emit({"log_evidence": float(found.log_evidence), **arrays})
    else:
        emit(f"log-evidence {found.log_evidence:.6g}")


def smooth(
    query: QueryOptions,
    series: SeriesOptions,
    *,
    out: NetCDF = Path("smoothed.nc"),
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Estimate the hidden state at each time from all observations, and draw its paths."""
    import jax.random as jr

    from ..hidden import smoothing

    require_netcdf("Smoothed states", out)
    require_figure(figure)
    model, conditioning = query.load()
    times, observations = read_series(series.data)
    seen = series.seen(observations, model.dim)
    found = smoothing.smooth(
        *(jr.key(series.seed), model, times, observations, seen.observe, series.particles),
        params=conditioning["params"],
        start=conditioning["start_time"],
    )
    found.to_xarray().to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        from ..view import filter_bands

        filter_bands(found, seen.states).savefig(figure)
    if as_json:
        emit({"log_evidence": float(found.log_evidence), **_arrays(found, "distinct")})
        return
    emit(f"log-evidence {found.log_evidence:.6g}")
    emit(f"Laws and {series.particles} paths are in {out}.")


def forecast(
    query: QueryOptions,
    series: SeriesOptions,
    until: Annotated[float, typer.Option(help="The last time of the forecast.")],
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of times.")] = 50,
    unit: Annotated[
        str | None, typer.Option(help="Unit of the SDE's time, if times are dates: day, year, ...")
    ] = None,
    out: NetCDF = Path("forecast.nc"),
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML page with figures and checks.")
    ] = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Forecast the state after the last of some observations with Gaussian noise."""
    import jax.random as jr
    from jax.scipy.stats import norm

    from ..evaluate.predictive import filter_check
    from ..hidden import filtering, forecasts

    require_netcdf("Forecasts", out)
    if report is not None:
        require_writable(report)
    require_figure(figure)
    times, observations = read_series(series.data, unit=unit)
    if not times[-1] < until < np.inf:
        raise ValueError(f"`--until` must lie after the last time, {times[-1]:g}; got {until:g}.")
    model, conditioning = query.load()
    params, seen = conditioning["params"], series.seen(observations, model.dim)
    keys = jr.split(jr.key(series.seed), 3)
    found = filtering.filter(
        *(keys[0], model, times, observations, seen.observe, series.particles),
        params=params,
        start=conditioning["start_time"],
        history=True,
    )
    ahead = np.linspace(times[-1], until, count + 1)[1:]
    future = forecasts.forecast(keys[1], model, found, ahead, params=params)
    future.to_xarray().to_netcdf(out, engine="h5netcdf")

    def cdf(x: "Float[Array, ' d']", y: "Float[Array, ' k']") -> "Float[Array, ' k']":
        return norm.cdf((y - x[np.array(seen.components)]) / series.noise)

    if report is not None:
        from ..view import series_report

        few = len(times) < 2
        check = None if few else filter_check(keys[2], model, found, observations, cdf, params)
        series_report(found, future, check, seen.states, name=series.data.name, path=report)
    if figure is not None:
        from ..view import forecast_fan

        forecast_fan(future, found, seen.states).savefig(figure)
    if as_json:
        emit({"log_evidence": float(found.log_evidence), **_arrays(future, "outside")})
        return
    low, high = (np.round(np.asarray(future.quantiles)[-1, i], 4).tolist() for i in (0, -1))
    emit(f"At t={until:g} the state lies between {low} and {high} with probability 0.9.")
    emit(f"The forecast is in {out}.")


def _arrays(found: Any, *more: str) -> dict[str, np.ndarray]:
    """Return the laws over time, and more fields of a result, as arrays."""
    names = ("times", "means", "variances", "levels", "quantiles", *more)
    return {name: np.asarray(getattr(found, name)) for name in names}


def observed_components(text: str | None, count: int, dim: int) -> list[int]:
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


def gaussian_likelihood(option: str, noise: float, observed: list[int]) -> "Observe":
    """Return the log-likelihood of some components, seen with Gaussian noise."""
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    if not 0 < noise < np.inf:
        raise ValueError(f"`{option}` must be a positive standard deviation; got {noise:g}.")

    def observe(x: "Float[Array, ' d']", y: "Float[Array, ' k']") -> "Float[Array, '']":
        seen = ~jnp.isnan(y)
        # A missing component contributes nothing to the likelihood, and has finite derivatives.
        gaps = (jnp.where(seen, y, 0.0) - x[np.array(observed)]) / noise
        return jnp.sum(jnp.where(seen, norm.logpdf(gaps) - jnp.log(noise), 0.0))

    return observe
