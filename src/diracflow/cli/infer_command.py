"""The command that samples the posterior of parameters."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

import diracflow as df

from .options import Components, Data, Equation, Figure, Json, NetCDF, Seed
from .series_commands import gaussian_likelihood, observed_components
from .tables import read_series, require_netcdf
from .terminal import conclude


@dataclasses.dataclass(frozen=True)
class ChainOptions:
    """Sizes of a run of Markov chains, and where they are kept."""

    chains: Annotated[int, typer.Option(help="Number of Markov chains.")] = 4
    draws: Annotated[int, typer.Option(help="Draws per chain.")] = 1000
    warmup: Annotated[int, typer.Option(help="Warm-up draws per chain, discarded.")] = 1000
    seed: Seed = 0
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for the chains: the same command resumes.")
    ] = None

    def keywords(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `diracflow.infer`."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in given.items() if name != "seed"}


@dataclasses.dataclass(frozen=True)
class NoiseOptions:
    """The dependence of observations on the state, if it is not seen exactly."""

    observe: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the observation noise; else states are exact."),
    ] = None
    components: Components = None
    particles: Annotated[int | None, typer.Option(help="Particles of each filter.")] = None
    initial: Annotated[
        str | None, typer.Option(help='Law at time 0: \'{"law": "Normal", "mean": 0, "std": 1}\'.')
    ] = None

    def keywords(self, columns: int, dim: int) -> dict[str, Any]:
        """Return the options as keyword arguments of `diracflow.infer`."""
        from .inputs import parse_law

        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.observe is None:
            if given:
                raise ValueError(
                    f"`--{next(iter(given))}` is for noisy or partial observations; give the "
                    "standard deviation of their noise with `--observe` as well."
                )
            return {}
        observed = observed_components(given.pop("components", None), columns, dim)
        likelihood = gaussian_likelihood("--observe", self.observe, observed)
        if self.initial is not None:
            given["initial"] = parse_law(self.initial)
        return {**given, "observe": likelihood}


def infer(
    model: Annotated[
        str, typer.Argument(help="A model with parameters, or ou or cir for exact densities.")
    ],
    data: Data,
    prior: Annotated[
        str, typer.Option(help='\'{"rate": {"law": "LogNormal", "mean": 0, "std": 1}, ...}\'.')
    ],
    *,
    noise: NoiseOptions,
    run: ChainOptions,
    out: NetCDF = Path("posterior.nc"),
    figure: Figure = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """Sample the posterior of the parameters, given an observed path."""
    import jax.random as jr

    from .inputs import parse_laws

    require_netcdf(out, figure)
    density = _density(model, sde)
    times, states = read_series(data)
    options = run.keywords() | noise.keywords(states.shape[1], density.dim)
    if noise.observe is None:
        read_series(data, density.dim)
    tree = df.infer(
        *(jr.key(run.seed), density, times, states, parse_laws("--prior", prior)),
        progress=not as_json,
        **options,
    )
    tree.to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        df.view.posterior_pairs(tree).savefig(figure)
    rows = {}
    for name in density.params:
        values = tree["posterior"][name]
        moments = {"mean": values.mean(), "deviation": values.std()}
        rows[name] = {key: float(value) for key, value in (moments | values.attrs).items()}
    lines = [
        f"{name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items())
        for name, row in rows.items()
    ]
    conclude(rows, as_json, "\n".join([*lines, f"The draws are in {out}."]))


def _density(model: str, sde: str | None) -> "df.AbstractTransitionDensity":
    from .inputs import load_model, prepare_jax

    exact = {"ou": df.ExactOrnsteinUhlenbeck, "cir": df.ExactCIR}
    if model in exact:
        prepare_jax()
        return exact[model]()
    if not Path(model).exists() and not Path(model).suffix:
        raise ValueError(f"No model file at {model}; exact densities are called ou and cir.")
    return load_model(Path(model), sde)[0]
