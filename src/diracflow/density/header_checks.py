"""Whether the header of a model file makes sense, entry by entry.

A checksum tells of accidents, but whoever changes a file can compute it anew. So nothing is built
from an entry before it is known to be of its kind and of a size that can be computed with.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

from ..models.catalogue import MODELS
from ..planning.settings import Settings
from ..storage.errors import DataFileError
from ..storage.fields import Field
from ..training.history import Record
from ..training.status import Status
from .header import FORMAT, WORDS, settings_of

# Bounds of what a file may ask for, far above what can be learned.
MOST_COMPONENTS, MOST_LAWS, MOST_STEPS = 1000, 1000, 30_000
_LARGEST = 2**53

Check = Callable[[Field], Any]


def check_header(header: Any) -> None:
    """Raise unless every entry is of its kind and within bounds."""
    fields = Field(header, "").record(*_ENTRIES)
    for name, check in _ENTRIES.items():
        check(fields[name])
    _require_agreement(header)


def _require_agreement(header: dict[str, Any]) -> None:
    """What several entries say together."""
    dim = header["sde"]["dim"]
    if not len(header["maps"]) == len(header["sde"]["domain"]) == dim:
        raise DataFileError(f"`maps` and `sde.domain` must have {dim} entries each.")
    if (header["start_time"] is None) == (header["start_times"] is None):
        raise DataFileError("it must have one of `start_time` and `start_times`.")
    asked, reached = header["asked_horizon"], header["horizon"]
    finished = header["status"] == Status.FINISHED.name
    if reached > asked * (1 + 1e-9) or (finished and reached != asked):
        raise DataFileError(
            f"`horizon` must be at most `asked_horizon`, {asked:g}, and equal to it if training "
            f"finished; got {reached:g}."
        )
    leg, legs = header["leg"], header["settings"]["legs"]
    # A training that stopped short and was extended had a longer one in view.
    short = header["status"] != Status.FINISHED.name
    if not (math.isclose(leg * legs, asked, rel_tol=1e-9) or (short and leg * legs > asked)):
        raise DataFileError(
            f"`leg` must be one of {legs} parts of `asked_horizon`, {asked:g}, or longer if "
            f"training stopped short; got {leg:g}."
        )


def _sde(field: Field) -> None:
    fields = field.record("dim", "noise_dim", "model", "arguments", "text", "domain")
    dim = fields["dim"].whole(1, MOST_COMPONENTS)
    fields["noise_dim"].whole(1, MOST_COMPONENTS)
    for text in fields["text"].record("drift", "diffusion").values():
        text.text(most=1_000_000)
    _domains(fields["domain"])
    if fields["model"].value is None:
        if fields["arguments"].value is not None:
            raise fields["arguments"].refusal("null where there is no model")
        return
    _arguments(fields["arguments"], fields["model"].one_of(MODELS), dim)


def _arguments(field: Field, model: str, dim: int) -> None:
    known = tuple(inspect.signature(MODELS[model]).parameters)
    for name, argument in field.record(optional=known).items():
        if name == "dim":
            argument.whole(dim, dim)
        elif name == "seed":
            argument.whole(0, _LARGEST)
        else:
            _numbers(argument, axes=2, most=dim)


def _numbers(field: Field, *, axes: int, most: int) -> None:
    """A number, or nested lists of them."""
    if axes and isinstance(field.value, list):
        for item in field.items(most=most):
            _numbers(item, axes=axes - 1, most=most)
    else:
        field.number()


def _domains(field: Field) -> None:
    for part in field.items(most=MOST_COMPONENTS):
        _domain(part)


def _domain(field: Field) -> None:
    kinds: dict[str, dict[str, Check]] = {
        "Real": {},
        "Positive": {"power": _maybe_power, "scale": _maybe_number},
        "Interval": {"low": Field.number, "high": Field.number, "arcsine": _maybe_truth},
    }
    _one_kind(field, "domain", kinds)


def _one_kind(field: Field, tag: str, kinds: dict[str, dict[str, Check]]) -> dict[str, Field]:
    """A record whose entry `tag` tells which others there are."""
    kind = Field(field.mapping(most=100).get(tag), f"{field.where}.{tag}").one_of(kinds)
    fields = field.record(tag, *kinds[kind])
    for name, check in kinds[kind].items():
        check(fields[name])
    return fields


def _law(field: Field) -> None:
    if _count(field.value) > MOST_LAWS:
        raise field.refusal(f"made of at most {MOST_LAWS} laws")
    kinds: dict[str, dict[str, Check]] = {
        "Normal": {"mean": _vector, "std": _vector},
        "Uniform": {"low": _vector, "high": _vector},
        "LogNormal": {"mean": _vector, "std": _vector},
        "Product": {"laws": _laws},
        "Mixture": {"laws": _laws, "weights": _weights},
    }
    if "covariance" in field.mapping(most=100):
        kinds = {"Normal": {"mean": _vector, "covariance": _matrix}}
    _one_kind(field, "law", kinds)


def _laws(field: Field) -> None:
    for law in field.items(most=MOST_LAWS):
        _law(law)


def _count(law: Any) -> int:
    """How many laws a law is made of."""
    inner = law.get("laws") if isinstance(law, dict) else None
    return 1 + sum(map(_count, inner if isinstance(inner, list) else []))


def _vector(field: Field) -> None:
    _numbers(field, axes=1, most=MOST_COMPONENTS)


def _weights(field: Field) -> None:
    for weight in field.items(most=MOST_LAWS):
        weight.number(0)


def _matrix(field: Field) -> None:
    rows = [row.items(most=MOST_COMPONENTS) for row in field.items(most=MOST_COMPONENTS)]
    if any(len(row) != len(rows) for row in rows):
        raise field.refusal("a square matrix")
    for row in rows:
        for entry in row:
            entry.number()


def _params(field: Field) -> None:
    for law in field.items(most=MOST_COMPONENTS):
        fields = law.mapping(most=100)
        Field(fields.get("name"), f"{law.where}.name").text()
        _law(law._replace(value={k: v for k, v in fields.items() if k != "name"}))


def _maybe(check: Check) -> Callable[[Field], None]:
    def checked(field: Field) -> None:
        if field.value is not None:
            check(field)

    return checked


_maybe_number, _maybe_truth, _maybe_law = _maybe(Field.number), _maybe(Field.truth), _maybe(_law)
_maybe_power = _maybe(lambda field: field.number(-10, 10))


def _settings(field: Field) -> None:
    names = [setting.name for setting in dataclasses.fields(Settings)]
    for name, setting in field.record(*names).items():
        if name in ("layers", "hidden", "bumps", "legs"):
            setting.whole(1, 10_000)
        elif isinstance(setting.value, str):
            setting.text(most=100)
        elif setting.value is not None:
            setting.number(-_LARGEST, _LARGEST)
    try:
        settings_of({"settings": field.value})
    except ValueError as error:
        raise DataFileError(f"`settings`: {error}") from error


def _history(field: Field) -> None:
    names = [entry.name for entry in dataclasses.fields(Record)]
    for record in field.items(most=MOST_STEPS):
        for name, entry in record.record(*names).items():
            entry.whole(0, _LARGEST) if name == "rejected" else _observed(entry)


def _observed(field: Field) -> None:
    """A number, or a word for one that is not finite."""
    if not isinstance(field.value, str) or field.value not in WORDS:
        field.number()


def _rows(required: dict[str, Check]) -> Callable[[Field], None]:
    """Rows of a table, some of whose columns are known; others hold numbers or lists of them."""

    def check(field: Field) -> None:
        for row in field.items(most=10_000):
            entries = row.mapping(most=100)
            for name in {**required, **entries}:
                entry = Field(entries.get(name), f"{row.where}.{name[:40]}")
                required.get(name, _further)(entry)

    return check


def _further(field: Field) -> None:
    if isinstance(field.value, dict):
        for name, value in field.mapping(most=MOST_COMPONENTS).items():
            _observed(Field(value, f"{field.where}.{name[:40]}"))
    elif isinstance(field.value, list):
        for item in field.items(most=MOST_COMPONENTS):
            _observed(item)
    else:
        _observed(field)


def _versions(field: Field) -> None:
    for name, version in field.mapping(most=100).items():
        Field(name, field.where).text(most=100)
        Field(version, f"{field.where}.{name[:40]}").text(most=100)


def _key(field: Field) -> None:
    for word in field.items(most=16):
        word.whole(0, 2**32 - 1)


_ENTRIES: dict[str, Check] = {
    "format": lambda field: field.whole(FORMAT, FORMAT),
    "sde": _sde,
    "maps": _domains,
    "boundaries": _rows(
        {
            "component": lambda field: field.whole(0, MOST_COMPONENTS),
            "end": Field.number,
            "index": _maybe_number,
            "accessible": Field.truth,
        }
    ),
    "starts": _law,
    "start_time": _maybe_number,
    "params": _params,
    "start_times": _maybe_law,
    "horizon": lambda field: field.number(0),
    "asked_horizon": lambda field: field.number(1e-300),
    "leg": lambda field: field.number(1e-300),
    "preset": lambda field: field.text(most=100),
    "settings": _settings,
    "why_source": Field.text,
    "status": lambda field: field.one_of(Status.__members__),
    "seconds": _observed,
    "versions": _versions,
    "key": _key,
    "certificate": _rows(
        {
            "t": Field.number,
            "start": lambda field: field.one_of(("centre", "edge")),
            "bound": _observed,
            "stderr": _observed,
        }
    ),
    "errors": _rows({"t": Field.number, "squared_l2": _observed, "total_variation": _observed}),
    "history": _history,
}
