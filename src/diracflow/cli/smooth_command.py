"""The command that smooths a series. It imports JAX when it runs."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .options import Data, Figure, Json, QueryOptions, Seed
from .query_commands import gaussian_likelihood, observed_components
from .tables import read_series, require_figure, require_writable
from .terminal import emit


def smooth(
    query: QueryOptions,
    data: Data,
    noise: Annotated[float, typer.Option(help="Standard deviation of the observation noise.")],
    *,
    components: Annotated[
        str | None, typer.Option(help="Observed components, such as 1,3; default the first ones.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles, and of paths.")] = 1000,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="A NetCDF file.")] = Path("smoothed.nc"),
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Estimate the hidden state at each time from all observations, with Gaussian noise."""
    import jax.random as jr

    from ..hidden import smoothing

    if out.suffix != ".nc":
        raise ValueError(f"Smoothed states are written as NetCDF, to a file named .nc; got {out}.")
    require_writable(out)
    require_figure(figure)
    model, conditioning = query.load()
    times, observations = read_series(data)
    observed = observed_components(components, observations.shape[1], model.dim)
    found = smoothing.smooth(
        *(jr.key(seed), model, times, observations),
        gaussian_likelihood("--noise", noise, observed),
        particles,
        params=conditioning["params"],
        start=conditioning["start_time"],
    )
    found.to_xarray().to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        from ..view import filter_bands

        shown = np.full((len(times), model.dim), np.nan)
        shown[:, observed] = observations
        filter_bands(found, shown).savefig(figure)
    if as_json:
        names = ("times", "means", "variances", "levels", "quantiles", "distinct")
        arrays = {name: np.asarray(getattr(found, name)) for name in names}
        emit({"log_evidence": float(found.log_evidence), **arrays})
        return
    emit(f"log-evidence {found.log_evidence:.6g}")
    emit(f"Laws and {particles} paths are in {out}.")
