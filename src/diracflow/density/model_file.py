r"""Model files: arrays and a JSON header in one file, with a SHA-256 of everything.

Loading executes nothing from the file. Built-in SDEs are made again from their name and arguments;
a user's SDE is passed again and compared with values of its coefficients stored at probe points.
"""

import json
import os
from typing import Any

import jax
import jax.random as jr
import numpy as np

from ..models.catalogue import model
from ..planning.build_ansatz import build_ansatz
from ..planning.sizes import parameter_count
from ..sde.chart import Chart
from ..sde.conditioning import Scope, scope
from ..sde.domains import domain_from
from ..sde.laws import law_from
from ..sde.sde import SDE
from ..storage.atomic import write_atomically
from ..storage.container import MAX_BYTES, packed, read_container
from ..storage.errors import DataFileError, named
from ..storage.strict_json import parsed
from ..training.history import Record
from ..training.status import Status
from .arrays import (
    MARKS,
    PATH,
    Arrays,
    check_arrays,
    lattice_arrays,
    lattice_of,
    trajectory_of,
)
from .composed import ComposedDensity
from .file_fingerprint import (
    compare_marks,
    compare_probes,
    marks,
    probe_values,
    require_among_starts,
)
from .finite_check import require_answers
from .header import described, settings_of, with_numbers
from .header_checks import check_header
from .learned import LearnedDensity, TransitionDensity
from .migration import format_of, migrated
from .provenance import Facts

_KIND = "diracflow"
# The first format whose headers are JSON to the letter, and whose files have marks.
_STRICT = 7


class ModelFileError(DataFileError):
    """A file that cannot be read as the model it claims to be."""


def save(density: LearnedDensity, path: str | os.PathLike) -> None:
    """Write `density` to `path`, replacing what is there only once all is written."""
    base = density.base if isinstance(density, ComposedDensity) else density
    assert isinstance(base, TransitionDensity)
    arrays = {
        **{name: getattr(density.trajectory, name) for name in PATH},
        **probe_values(density.sde, density.scope, density.start_time, density.horizon),
        MARKS: marks(base.ansatz),
        **lattice_arrays(getattr(density, "lattice", None)),
    }
    arrays = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
    header = json.dumps(described(density), allow_nan=False)
    write_atomically(path, packed(_KIND, header, arrays))


def load(
    path: str | os.PathLike, sde: SDE | None = None, *, max_bytes: int = MAX_BYTES
) -> LearnedDensity:
    """Read a density written by `save`.

    **Arguments:**

    - `path`: the file.
    - `sde`: the equation, unless it is a built-in model's. It must be the one the density was
        learned for; its coefficients are compared with stored values.
    - `max_bytes`: larger files are refused before they are read.
    """
    if sde is not None and not isinstance(sde, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(sde).__name__}.")
    with named(path, ModelFileError):
        header, arrays = _read(path, max_bytes)
        try:
            return _restored(header, arrays, sde)
        except DataFileError:
            raise
        except (ValueError, ArithmeticError) as error:
            raise DataFileError(f"what it describes cannot be built: {error}") from error


def read_header(path: str | os.PathLike, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The header of a model file, in the present format, after everything has been verified."""
    with named(path, ModelFileError):
        return with_numbers(_read(path, max_bytes)[0])


def _read(path: str | os.PathLike, max_bytes: int) -> tuple[dict[str, Any], Arrays]:
    try:
        container = read_container(path, _KIND, max_bytes=max_bytes)
    except FileNotFoundError:
        raise FileNotFoundError(f"No model file at {os.fspath(path)}.") from None
    words: list[str] = []
    header, arrays = parsed(container.header.encode(), words=words), container.arrays
    written = format_of(header)
    if words and written >= _STRICT:
        raise DataFileError(f"its header has {words[0]}, which is not JSON.")
    if written >= _STRICT and MARKS not in arrays:
        raise DataFileError(f"it lacks the array `{MARKS}`.")
    header, arrays = migrated(header, arrays)
    check_header(header)
    check_arrays(header, arrays)
    return header, arrays


def _restored(header: dict[str, Any], arrays: Arrays, sde: SDE | None) -> LearnedDensity:
    settings, start_time = settings_of(header), header["start_time"]
    _require_width(header, arrays)
    sde = _equation(header["sde"], sde)
    laws = _laws(header, sde)
    chart = Chart(sde, tuple(map(domain_from, header["maps"])))
    require_among_starts(laws, chart, arrays)
    compare_probes(sde, arrays, start_time)
    with jax.enable_x64(True):
        ansatz = build_ansatz(
            *(chart.equation(), chart.law(laws.law), start_time),
            *(header["leg"], settings, jr.key(0)),
        )
    compare_marks(marks(ansatz), arrays.get(MARKS))
    base = TransitionDensity(ansatz, trajectory_of(arrays), laws, _facts(header), chart)
    density: LearnedDensity = base
    if settings.legs != 1 and base.horizon > 0:
        lattice = lattice_of(arrays, settings.legs or 1)
        density = ComposedDensity(base, header["horizon"], lattice=lattice)
    require_answers(density, arrays["probe_x"])
    return density


def _facts(header: dict[str, Any]) -> Facts:
    header = with_numbers(header)
    return Facts(
        settings=settings_of(header),
        preset=header["preset"],
        asked_horizon=header["asked_horizon"],
        status=Status[header["status"]],
        seconds=header["seconds"],
        history=tuple(Record(**record) for record in header["history"]),
        versions=header["versions"],
        why_source=header["why_source"],
        key=tuple(header["key"]),
        certificate=tuple(header["certificate"]),
        errors=tuple(header["errors"]),
        boundaries=tuple(header["boundaries"]),
        leg=header["leg"],
    )


def _require_width(header: dict[str, Any], arrays: Arrays) -> None:
    """Raise if the flow of the settings is not the one whose parameters the file holds."""
    given = arrays["probe_x"].shape[1]
    width = parameter_count(header["sde"]["dim"], given, settings_of(header))
    found = arrays["thetas"].shape[1]
    if found != width:
        raise DataFileError(
            f"the flow of these settings has {width} parameters; the file holds {found}."
        )


def _laws(header: dict[str, Any], sde: SDE) -> Scope:
    stored = [dict(law) for law in header["params"]]
    params = {law.pop("name"): law_from(law) for law in stored}
    if tuple(params) != sde.params:
        raise DataFileError(
            f"it was learned for an SDE with the parameters {list(params)}; the SDE given has "
            f"{list(sde.params)}."
        )
    times = None if header["start_times"] is None else law_from(header["start_times"])
    return scope(sde, law_from(header["starts"]), params, times)


def _equation(stored: dict[str, Any], sde: SDE | None) -> SDE:
    if sde is None and stored["model"] is None:
        raise DataFileError(
            "it was learned for an SDE of the user's, which files do not contain. Pass it: "
            "`load(path, sde=sde)`."
        )
    if sde is None:
        sde = model(stored["model"], **stored["arguments"]).sde
    if (sde.dim, sde.noise_dim) != (stored["dim"], stored["noise_dim"]):
        raise DataFileError(
            f"it was learned for an SDE with {stored['dim']} components and "
            f"{stored['noise_dim']} noise columns; got {sde.dim} and {sde.noise_dim}."
        )
    domain = [part.ends for part in map(domain_from, stored["domain"])]
    if domain != [part.ends for part in sde.domain]:
        raise DataFileError(
            f"it was learned on the domain {domain}, lower and upper ends of each component; "
            f"that of the SDE given is {[part.ends for part in sde.domain]}."
        )
    return sde
