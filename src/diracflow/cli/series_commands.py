"""The commands that estimate hidden states from a series. They import JAX when they run."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from jaxtyping import Float

import diracflow as df

from .options import Components, Data, Figure, Json, NetCDF, QueryOptions, Seed, TableOptions
from .tables import read_series, require_netcdf, require_writable, state_columns
from .terminal import conclude

if TYPE_CHECKING:
    from jaxtyping import Array  # which imports JAX

    from ..density.learned import LearnedDensity
    from ..hidden.guided_jumps import Observe


class Seen(NamedTuple):
    """The arguments of a filter or smoother of a series that shows some components of a state."""

    # Density, times, values, their log-likelihood given a state, number of particles.
    arguments: tuple["LearnedDensity", np.ndarray, np.ndarray, "Observe", int]
    given: dict[str, Any]  # parameters of the SDE and start time
    components: list[int]

    @property
    def states(self) -> Float[np.ndarray, "n d"]:
        """The states, NaN where they are not observed."""
        model, times, values, *_ = self.arguments
        states = np.full((len(times), model.dim), np.nan)
        states[:, self.components] = values
        return states


@dataclasses.dataclass(frozen=True)
class SeriesOptions:
    """Observations with Gaussian noise, and the particles and the seed of their filter."""

    data: Data
    noise: Annotated[float, typer.Option(help="Standard deviation of the observation noise.")]
    components: Components = None
    particles: Annotated[int, typer.Option(help="Number of particles.")] = 1000
    seed: Seed = 0

    def seen(self, query: QueryOptions, unit: str | None = None) -> Seen:
        """Return the series with the density in the model file."""
        model, conditioning = query.load()
        times, values = read_series(self.data, unit=unit)
        components = observed_components(self.components, values.shape[1], model.dim)
        observe = gaussian_likelihood("--noise", self.noise, components)
        given = {"params": conditioning["params"], "start": conditioning["start_time"]}
        return Seen((model, times, values, observe, self.particles), given, components)


def filter(  # the standard term
    query: QueryOptions, series: SeriesOptions, *, figure: Figure = None, table: TableOptions
) -> None:
    """Estimate the hidden state from observations with Gaussian noise."""
    import jax.random as jr

    table.check(figure)
    seen = series.seen(query)
    found = df.filter(jr.key(series.seed), *seen.arguments, **seen.given)
    arrays = _arrays(found, "effective_shares", "outside")
    columns, parts = {"time": arrays["times"]}, {"mean": arrays["means"]}
    parts["variance"] = arrays["variances"]
    for index, level in enumerate(found.levels):
        parts[f"q{level:g}"] = arrays["quantiles"][:, index]
    for name, part in parts.items():
        columns |= {f"{name}_{c}": values for c, values in state_columns(part).items()}
    if figure is not None:
        df.view.filter_bands(found, seen.states).savefig(figure)
    text = f"log-evidence {found.log_evidence:.6g}"
    table.write(columns, arrays, text, log_evidence=float(found.log_evidence))


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

    require_netcdf(out, figure)
    seen = series.seen(query)
    found = df.smooth(jr.key(series.seed), *seen.arguments, **seen.given)
    found.to_xarray().to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        df.view.filter_bands(found, seen.states).savefig(figure)
    text = f"log-evidence {found.log_evidence:.6g}\nLaws and {series.particles} paths are in {out}."
    laws = {"log_evidence": float(found.log_evidence), **_arrays(found, "distinct")}
    conclude(laws, as_json, text)


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

    require_netcdf(out, figure)
    if report is not None:
        require_writable(report)
    seen = series.seen(query, unit)
    model, times, observations, *_ = seen.arguments
    if not times[-1] < until < np.inf:
        raise ValueError(f"`--until` must lie after the last time, {times[-1]:g}; got {until:g}.")
    params, keys = seen.given["params"], jr.split(jr.key(series.seed), 3)
    found = df.filter(keys[0], *seen.arguments, **seen.given, history=True)
    ahead = np.linspace(times[-1], until, count + 1)[1:]
    future = df.forecast(keys[1], model, found, ahead, params=params)
    future.to_xarray().to_netcdf(out, engine="h5netcdf")

    def cdf(x: "Float[Array, ' d']", y: "Float[Array, ' k']") -> "Float[Array, ' k']":
        return norm.cdf((y - x[np.array(seen.components)]) / series.noise)

    if report is not None:
        checked = (keys[2], model, found, observations, cdf, params)
        check = df.evaluate.filter_check(*checked) if len(times) > 1 else None
        df.view.series_report(found, future, check, seen.states, name=series.data.name, path=report)
    if figure is not None:
        df.view.forecast_fan(future, found, seen.states).savefig(figure)
    laws = {"log_evidence": float(found.log_evidence), **_arrays(future, "outside")}
    low, high = (np.round(np.asarray(future.quantiles)[-1, i], 4).tolist() for i in (0, -1))
    text = f"At t={until:g} the state lies between {low} and {high} with probability 0.9."
    conclude(laws, as_json, f"{text}\nThe forecast is in {out}.")


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
