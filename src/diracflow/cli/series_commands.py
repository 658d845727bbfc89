"""The command that forecasts a series. It imports JAX when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from .options import Data, Figure, Json, QueryOptions, Seed
from .query_commands import gaussian_likelihood, observed_components
from .tables import read_series, require_figure, require_writable
from .terminal import emit

if TYPE_CHECKING:
    from jaxtyping import Array, Float


def forecast(
    query: QueryOptions,
    data: Data,
    noise: Annotated[float, typer.Option(help="Standard deviation of the observation noise.")],
    until: Annotated[float, typer.Option(help="The last time of the forecast.")],
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of times.")] = 50,
    unit: Annotated[
        str | None, typer.Option(help="Unit of the SDE's time, if times are dates: day, year, ...")
    ] = None,
    components: Annotated[
        str | None, typer.Option(help="Observed components, such as 1,3; default the first ones.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles.")] = 1000,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="A NetCDF file.")] = Path("forecast.nc"),
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

    if out.suffix != ".nc":
        raise ValueError(f"Forecasts are written as NetCDF, to a file named .nc; got {out}.")
    for path in (out, report):
        if path is not None:
            require_writable(path)
    require_figure(figure)
    times, observations = read_series(data, unit=unit)
    if not times[-1] < until < np.inf:
        raise ValueError(f"`--until` must lie after the last time, {times[-1]:g}; got {until:g}.")
    model, conditioning = query.load()
    params, seen = (
        conditioning["params"],
        observed_components(components, observations.shape[1], model.dim),
    )
    keys = jr.split(jr.key(seed), 3)
    observe = gaussian_likelihood("--noise", noise, seen)
    found = filtering.filter(
        *(keys[0], model, times, observations, observe, particles),
        params=params,
        start=conditioning["start_time"],
        history=True,
    )
    ahead = np.linspace(times[-1], until, count + 1)[1:]
    future = forecasts.forecast(keys[1], model, found, ahead, params=params)
    future.to_xarray().to_netcdf(out, engine="h5netcdf")

    def cdf(x: "Float[Array, ' d']", y: "Float[Array, ' k']") -> "Float[Array, ' k']":
        return norm.cdf((y - x[np.array(seen)]) / noise)

    shown = np.full((len(times), model.dim), np.nan)
    shown[:, seen] = observations
    if report is not None:
        from ..view import series_report

        few = len(times) < 2
        check = None if few else filter_check(keys[2], model, found, observations, cdf, params)
        series_report(found, future, check, shown, name=data.name, path=report)
    if figure is not None:
        from ..view import forecast_fan

        forecast_fan(future, found, shown).savefig(figure)
    if as_json:
        names = ("times", "means", "variances", "levels", "quantiles", "outside")
        arrays = {name: np.asarray(getattr(future, name)) for name in names}
        emit({"log_evidence": float(found.log_evidence), **arrays})
        return
    low, high = (np.round(np.asarray(future.quantiles)[-1, i], 4).tolist() for i in (0, -1))
    emit(f"At t={until:g} the state lies between {low} and {high} with probability 0.9.")
    emit(f"The forecast is in {out}.")
