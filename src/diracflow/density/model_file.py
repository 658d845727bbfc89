r"""Model files: the arrays of a density and a JSON header in one file, with a SHA-256 of it.

Loading executes nothing from the file. Built-in SDEs are built from their name and arguments. A
user's SDE is passed again, and its coefficients are compared with stored values.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..sde.fingerprint import Fingerprint, fingerprint, fingerprint_at
from ..sde.sde import SDE
from ..storage.codec import Arrays, Decoder, Encoder
from ..storage.container import MAX_BYTES, packed, read_container
from ..storage.files import write_atomically
from ..storage.strict_json import DataFileError, json_text, named
from .abstract_learned import AbstractLearnedDensity
from .encoding import CLASSES, StoredSDE, encode_sde, sde_decoder, stored_sde, with_users
from .finite_check import require_sound
from .learned import LearnedDensity

FORMAT = 1
_KIND = "diracflow"
# Relative difference at which an SDE is another one. Some hold their constants in float32.
_TOLERANCE = 1e-5


class ModelFileError(DataFileError):
    """A file that cannot be read as a model."""


def save(density: AbstractLearnedDensity, path: str | os.PathLike) -> None:
    """Write `density` to `path`; an existing file is replaced once the new one is complete."""
    encoder = Encoder(CLASSES, encode_sde)
    probes = fingerprint(density.sde, density.scope.law, density.start_time, density.horizon)
    parts = {"sde": stored_sde(density.sde), "fingerprint": probes, "density": density}
    header = {name: encoder(part, name) for name, part in parts.items()}
    text = json_text({"format": FORMAT, **header})
    write_atomically(path, [packed(_KIND, text, encoder.arrays)])


def load(
    path: str | os.PathLike,
    sde: SDE | None = None,
    *,
    classes: Iterable[type] = (),
    max_bytes: int = MAX_BYTES,
) -> LearnedDensity:
    """Read a density written by `save`.

    **Arguments:**

    - `path`: the file.
    - `sde`: the equation, unless it is that of a built-in model. It must be the one the density
        was learned for; its coefficients are compared with stored values.
    - `classes`: classes of your own that the density contains, such as that of a source.
    - `max_bytes`: the largest size of a file that is read.

    **Returns:**

    The density. `ModelFileError` is raised if the file is not what `save` wrote.
    """
    if sde is not None and not isinstance(sde, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(sde).__name__}.")
    known = with_users(classes)
    with _reading(path, max_bytes) as (header, arrays):
        return _restored(header, arrays, sde, known)


def read_header(path: str | os.PathLike, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return what a model file says about its density, in plain Python values."""
    with _reading(path, max_bytes) as (header, arrays):
        stored, _ = _equation(header, arrays)
        decoder = Decoder(arrays, CLASSES, sde_decoder(stored.stand_in()), SimpleNamespace)
        return header_of(decoder(header["density"], "density"), stored)


@contextlib.contextmanager
def _reading(path: str | os.PathLike, max_bytes: int) -> Iterator[tuple[dict[str, Any], Arrays]]:
    """Provide header and arrays of a file, and name it in every error about them."""
    with named(path, ModelFileError):
        contents = _read(path, max_bytes)
        try:
            yield contents
        except DataFileError:
            raise
        except Exception as error:  # whatever parts that do not fit together lead to
            raise DataFileError(f"what it describes cannot be built: {error}") from error


def _read(path: str | os.PathLike, max_bytes: int) -> tuple[dict[str, Any], Arrays]:
    try:
        header, arrays = read_container(path, _KIND, max_bytes=max_bytes)
    except FileNotFoundError:
        raise FileNotFoundError(f"No model file at {os.fspath(path)}.") from None
    written = header.get("format") if isinstance(header, dict) else None
    if isinstance(written, bool) or not isinstance(written, int):
        raise DataFileError(f"it must have a number as its `format`; got {str(written)[:40]}.")
    if written != FORMAT:
        raise DataFileError(
            f"it has format {written}; this diracflow reads format {FORMAT}. Upgrade diracflow, or "
            "use the version that wrote it."
        )
    if set(header) != {"format", "sde", "fingerprint", "density"}:
        raise DataFileError(f"its header has the entries {', '.join(header)[:200]}.")
    return header, arrays


def _equation(header: dict[str, Any], arrays: Arrays) -> tuple[StoredSDE, Fingerprint]:
    """Decode what does not need an SDE, and take its arrays out of `arrays`."""
    own = {name: arrays.pop(name) for name in list(arrays) if name.startswith("fingerprint.")}
    decoder = Decoder(own, CLASSES, _no_external)
    stored, probes = (decoder(header[name], name) for name in ("sde", "fingerprint"))
    decoder.require_all_used()
    if not isinstance(stored, StoredSDE) or not isinstance(probes, Fingerprint):
        raise DataFileError("its `sde` and its `fingerprint` must be those of an SDE.")
    return stored, probes


def _no_external(decoder: Decoder, node: dict[str, Any], path: str) -> Any:
    raise DataFileError(f"`{path}` is not an object that files have; got {str(node)[:60]}.")


def _restored(
    header: dict[str, Any], arrays: Arrays, sde: SDE | None, classes: dict[str, type]
) -> LearnedDensity:
    stored, probes = _equation(header, arrays)
    sde = stored.rebuilt() if sde is None else sde
    stored.require(sde)
    decoder = Decoder(arrays, classes, sde_decoder(sde))
    density = decoder(header["density"], "density")
    decoder.require_all_used()
    if not isinstance(density, LearnedDensity):
        raise DataFileError(f"it must hold a density; got {type(density).__name__}.")
    _require_same(sde, density.start_time, probes)
    require_sound(density, probes)
    return density


def _require_same(sde: SDE, start_time: float | None, stored: Fingerprint) -> None:
    """Raise unless an SDE has the stored coefficients."""
    if not (np.isfinite(stored.drift).any() and np.isfinite(stored.diffusion).any()):
        raise DataFileError("its fingerprint has no finite value by which to know the SDE.")
    found = fingerprint_at(sde, start_time, stored.tau, stored.given)
    difference = stored.difference(found, _TOLERANCE)
    if difference:
        raise DataFileError(
            f"it was learned for another SDE: {difference}. Pass the SDE that was learned."
        )


def header_of(density: LearnedDensity, stored: StoredSDE | None = None) -> dict[str, Any]:
    """Return the entries that `diracflow info` and reports show."""
    stored, provenance = stored or stored_sde(density.sde), density.provenance
    tables = ("boundaries", "certificate", "errors", "key")
    sde = {**vars(stored), "domain": [part.describe() for part in stored.domain]}
    return {
        "format": FORMAT,
        "sde": sde | {"params": list(stored.params)},
        "maps": [part.describe() for part in density.chart.maps],
        "starts": density.scope.starts.describe(),
        **density.scope.describe(),
        "start_time": density.start_time,
        "horizon": density.horizon,
        "reach": density.reach,
        "plan": provenance.plan.describe(),
        "status": provenance.status.name,
        "history": [dataclasses.asdict(record) for record in provenance.history],
        **{name: list(getattr(provenance, name)) for name in tables},
        "seconds": provenance.seconds,
        "versions": provenance.versions,
    }
