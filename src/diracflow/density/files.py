r"""Model files: arrays and a JSON header in one safetensors file, with a SHA-256 of everything.

Loading executes nothing from the file. Built-in SDEs are made again from their name and arguments;
a user's SDE is passed again and compared with values of its coefficients stored at probe points.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..problem.chart import Chart
from ..problem.domains import domain_from
from ..problem.given import Scope, scope
from ..problem.laws import law_from
from ..problem.models import model
from ..problem.probes import coefficients
from ..problem.sde import SDE
from ..storage.atomic import write_atomically
from ..storage.digest import digest
from ..training.build import build_ansatz
from ..training.history import Record
from ..training.settings import Settings
from ..training.status import Status
from ..training.trajectory import Trajectory
from .card import equation_text
from .transition import Facts, TransitionDensity

FORMAT = 6
_PROBES = 8


class ModelFileError(ValueError):
    """A file that cannot be read as the model it claims to be."""


def save(density: TransitionDensity, path: str | os.PathLike) -> None:
    """Write `density` to `path`, replacing what is there only once all is written."""
    arrays = {
        "clocks": density.trajectory.clocks,
        "thetas": density.trajectory.thetas,
        "first": density.trajectory.first,
        "last": density.trajectory.last,
        **_probe_values(density.sde, density.scope, density.start_time, density.horizon),
    }
    arrays = {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}
    header = json.dumps(_header(density))
    from safetensors.numpy import save as to_bytes

    metadata = {"diracflow": header, "sha256": digest(header, arrays)}
    write_atomically(pathlib.Path(path), to_bytes(arrays, metadata=metadata))


def load(path: str | os.PathLike, sde: SDE | None = None) -> TransitionDensity:
    """Read a density written by `save`.

    **Arguments:**

    - `path`: the file.
    - `sde`: the equation, unless it is a built-in model's. It must be the one the density was
        learned for; its coefficients are compared with stored values.
    """
    if sde is not None and not isinstance(sde, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(sde).__name__}.")
    header, arrays = _read(pathlib.Path(path))
    try:
        return _restored(header, arrays, sde, str(path))
    except KeyError as error:
        raise ModelFileError(f"{path}: the header lacks {error}.") from error


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """The header of a model file, after its checksum has been verified."""
    return _read(pathlib.Path(path))[0]


def _header(density: TransitionDensity) -> dict[str, Any]:
    facts, origin = density.facts, density.sde.origin
    return {
        "format": FORMAT,
        "sde": {
            "dim": density.dim,
            "noise_dim": density.sde.noise_dim,
            "model": None if origin is None else origin[0],
            "arguments": None if origin is None else json.loads(origin[1]),
            "text": equation_text(density.sde),
            "domain": [part.describe() for part in density.sde.domain],
        },
        "maps": [part.describe() for part in density.chart.maps],
        "boundaries": list(facts.boundaries),
        "starts": density.starts.describe(),
        "start_time": density.start_time,  # or null, where `start_times` is its law
        **density.scope.describe(),
        "horizon": density.horizon,
        "asked_horizon": facts.asked_horizon,
        "preset": facts.preset,
        "settings": _finite_fields(dataclasses.asdict(facts.settings)),
        "why_source": facts.why_source,
        "status": facts.status.name,
        "seconds": facts.seconds,
        "versions": facts.versions,
        "key": list(facts.key),
        "certificate": list(facts.certificate),
        "errors": list(facts.errors),
        "history": [dataclasses.asdict(record) for record in facts.history],
    }


def _restored(
    header: dict[str, Any], arrays: dict[str, np.ndarray], sde: SDE | None, path: str
) -> TransitionDensity:
    sde = _equation(header["sde"], sde, path)
    laws = _laws(header, sde, path)
    chart = Chart(sde, tuple(map(domain_from, header["maps"])))
    _compare_probes(sde, arrays, header["start_time"], path)
    settings = Settings(**_infinite_fields(header["settings"]))
    with jax.enable_x64(True):
        ansatz = build_ansatz(
            *(chart.equation(), chart.law(laws.law), header["start_time"]),
            *(header["asked_horizon"], settings, jr.key(0)),
        )
        width = len(ansatz.theta)
    trajectory = Trajectory(*(arrays[name] for name in ("clocks", "thetas", "first", "last")))
    if trajectory.thetas.shape[1] != width:
        raise ModelFileError(
            f"{path}: the flow of these settings has {width} parameters; the file holds "
            f"{trajectory.thetas.shape[1]}."
        )
    facts = Facts(
        settings=settings,
        preset=header["preset"],
        asked_horizon=header["asked_horizon"],
        status=Status[header["status"]],
        seconds=header["seconds"],
        history=tuple(Record(**record) for record in header["history"]),
        versions=header["versions"],
        why_source=header.get("why_source", ""),  # files of earlier versions do not say
        key=tuple(header["key"]),
        certificate=tuple(header["certificate"]),
        errors=tuple(header["errors"]),
        boundaries=tuple(header["boundaries"]),
    )
    return TransitionDensity(ansatz, trajectory, laws, facts, chart)


def _laws(header: dict[str, Any], sde: SDE, path: str) -> Scope:
    stored = [dict(law) for law in header["params"]]
    params = {law.pop("name"): law_from(law) for law in stored}
    if tuple(params) != sde.params:
        raise ModelFileError(
            f"{path} was learned for an SDE with the parameters {list(params)}; the SDE given has "
            f"{list(sde.params)}."
        )
    times = None if header["start_times"] is None else law_from(header["start_times"])
    return scope(sde, law_from(header["starts"]), params, times)


def _equation(stored: dict[str, Any], sde: SDE | None, path: str) -> SDE:
    if sde is None and stored["model"] is None:
        raise ModelFileError(
            f"{path} was learned for an SDE of the user's, which files do not contain. Pass it: "
            "`load(path, sde=sde)`."
        )
    if sde is None:
        sde = model(stored["model"], **stored["arguments"]).sde
    if (sde.dim, sde.noise_dim) != (stored["dim"], stored["noise_dim"]):
        raise ModelFileError(
            f"{path} was learned for an SDE with {stored['dim']} components and "
            f"{stored['noise_dim']} noise columns; got {sde.dim} and {sde.noise_dim}."
        )
    domain = [part.ends for part in map(domain_from, stored["domain"])]
    if domain != [part.ends for part in sde.domain]:
        raise ModelFileError(
            f"{path} was learned on the domain {domain}, lower and upper ends of each component; "
            f"that of the SDE given is {[part.ends for part in sde.domain]}."
        )
    return sde


def _probe_values(
    sde: SDE, laws: Scope, start_time: float | None, horizon: float
) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        x = laws.law.sample(jr.key(1), (_PROBES,))
        tau = jnp.linspace(0, horizon, _PROBES)
        points = {"probe_tau": np.asarray(tau), "probe_x": np.asarray(x)}
        return points | _coefficients(sde, start_time, tau, x)


def _compare_probes(
    sde: SDE, arrays: dict[str, np.ndarray], start_time: float | None, path: str
) -> None:
    with jax.enable_x64(True):
        points = (jnp.asarray(arrays[name]) for name in ("probe_tau", "probe_x"))
        found = _coefficients(sde, start_time, *points)
    for name, values in found.items():
        # An SDE that holds its constants in float32 agrees to single precision only.
        close = np.isclose(values, arrays[name], rtol=1e-5, atol=1e-6)
        if not close.all():
            worst = int(np.argmin(close.reshape(len(close), -1).all(axis=1)))
            x = arrays["probe_x"][worst]
            t = arrays["probe_tau"][worst] + (x[-1] if start_time is None else start_time)
            raise ModelFileError(
                f"{path} was learned for another SDE: at t={t:g}, x={x.tolist()} its "
                f"`{name.removeprefix('probe_')}` was "
                f"{arrays[name][worst].tolist()}; that of the SDE given is "
                f"{values[worst].tolist()}. Pass the SDE that was learned."
            )


def _coefficients(
    sde: SDE, start_time: float | None, tau: jax.Array, x: jax.Array
) -> dict[str, np.ndarray]:
    drift, diffusion = coefficients(sde, start_time, tau, x)
    return {"probe_drift": drift, "probe_diffusion": diffusion}


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"No model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is not a complete diracflow model: {error}") from error
    if "diracflow" not in metadata or "sha256" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not a diracflow model.")
    if digest(metadata["diracflow"], arrays) != metadata["sha256"]:
        raise ModelFileError(f"{path} has changed since it was written: its checksum differs.")
    header = json.loads(metadata["diracflow"])
    if header.get("format") != FORMAT:
        raise ModelFileError(
            f"{path} has format {header.get('format')}; this diracflow reads format {FORMAT}. "
            "Upgrade diracflow, or learn the model again."
        )
    return header, arrays


# JSON has no infinity.
def _finite_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == float("inf") else value for name, value in fields.items()}


def _infinite_fields(fields: dict[str, Any]) -> dict[str, Any]:
    infinite = {n: float("inf") for n in ("allowance", "max_seconds") if fields[n] is None}
    return {**fields, **infinite}
