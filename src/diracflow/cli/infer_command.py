"""`diracflow infer`: the posterior of parameters, given an observed path."""

from pathlib import Path
from typing import Any

import jax.random as jr

from ..models.families import ExactOrnsteinUhlenbeck
from ..models.square_root import ExactCIR
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.inference import infer
from .inputs import load_model
from .observed_series import read_states
from .output_paths import require_figure, require_place
from .preparation import prepare_jax
from .streams import emit
from .tables import as_json
from .user_problem import read_laws

# Families of densities that are known exactly, by name.
_FAMILIES = {"ou": ExactOrnsteinUhlenbeck, "cir": ExactCIR}


def print_posterior(
    model: str,
    data: Path,
    prior: str,
    chains: int,
    draws: int,
    warmup: int,
    seed: int,
    out: Path,
    figure: Path | None,
    sde: str | None,
    json: bool,
) -> None:
    """Draws into the NetCDF file `out`; mean, deviation and quality of each parameter printed."""
    if out.suffix != ".nc":
        raise ValueError(f"Posteriors are written as NetCDF, to a file named .nc; got {out}.")
    require_place(out)
    require_figure(figure)
    density = _density(model, sde)
    times, states = read_states(data, density.dim)
    counts = {"chains": chains, "draws": draws, "warmup": warmup}
    tree = infer(
        jr.key(seed),
        density,
        times,
        states,
        read_laws("--prior", prior),
        progress=not json,
        **counts,
    )
    tree.to_netcdf(out, engine="h5netcdf")
    if figure is not None:
        from ..view import posterior_pairs  # needs matplotlib

        posterior_pairs(tree).savefig(figure)
    found = {name: _summary(tree, name) for name in density.params}
    emit(as_json(found) if json else _words(found, out))


def _density(model: str, sde: str | None) -> AbstractTransitionDensity:
    if model in _FAMILIES:
        prepare_jax()
        return _FAMILIES[model]()
    if not Path(model).exists() and not Path(model).suffix:
        names = " and ".join(_FAMILIES)
        raise ValueError(f"No model file at {model}; exact densities are called {names}.")
    return load_model(Path(model), sde)


def _summary(tree: Any, name: str) -> dict[str, float]:
    draws = tree["posterior"][name]
    found = {"mean": float(draws.mean()), "deviation": float(draws.std())}
    return found | {key: float(value) for key, value in draws.attrs.items()}


def _words(found: dict[str, dict[str, float]], out: Path) -> str:
    lines = [
        f"{name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items())
        for name, row in found.items()
    ]
    return "\n".join([*lines, f"The draws are in {out}."])
