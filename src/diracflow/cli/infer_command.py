"""`diracflow infer`: the posterior of the SDE parameters, given an observed path.

JAX is imported when the command runs, so that `--help` does not wait for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .data_files import read_states
from .options import Data, Equation, Figure, Json, Seed
from .results import emit_json, require_figure, require_writable
from .streams import emit

if TYPE_CHECKING:
    from ..transition.transition_density import AbstractTransitionDensity


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
    times, states = read_states(data, density.dim)
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
    found = {name: _summary(tree, name) for name in density.params}
    if as_json:
        emit_json(found)
    else:
        emit(_text(found, out))


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
    return load_model(Path(model), sde)


def _summary(tree: Any, name: str) -> dict[str, float]:
    draws = tree["posterior"][name]
    found = {"mean": float(draws.mean()), "deviation": float(draws.std())}
    return found | {key: float(value) for key, value in draws.attrs.items()}


def _text(found: dict[str, dict[str, float]], out: Path) -> str:
    lines = [
        f"{name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items())
        for name, row in found.items()
    ]
    return "\n".join([*lines, f"The draws are in {out}."])
