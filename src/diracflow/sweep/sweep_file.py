"""What a sweep is to run, read from TOML.

Wherever a value is allowed, a list of values is, and runs are the product of all lists. What is not
known is refused: a slip in a name would else sweep over nothing, unseen.
"""

import dataclasses
import inspect
import itertools
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..models.catalogue import MODELS
from ..planning.settings import Settings
from .run_folder import RunFolder
from .sweep_run import Run, digest_of, require_sound

# Keys that hold for all SDEs, or for one of them if they stand in its table.
_SHARED = ("preset", "seed", "horizon", "starts", "params", "start_time", "settings")
_TOP = ("out", "certify", "error_starts", "memory_limit", *_SHARED, "sde")
_SDE = ("model", "arguments", "file", *_SHARED)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs of a sweep, the directory that keeps them, and that of the SDEs' files."""

    out: Path
    base: Path
    runs: tuple[Run, ...]

    def folder(self, run: Run) -> RunFolder:
        """Where a run is kept."""
        return RunFolder(self.out / "runs" / run.name)


def read_plan(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Plan:
    """The plan in a TOML file; `out` replaces the directory named there.

    Paths in the file are seen from where the file is. Without `out` the directory is beside it, of
    the file's name without its ending.
    """
    path = Path(path).absolute()
    try:
        text = path.read_bytes().decode("utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not TOML: {error}.") from None
    if out is None and not path.suffix:
        raise ValueError(f"{path.name} has no ending such as .toml: say where the runs are to be.")
    try:
        folder = path.parent / _text("out", content.pop("out", path.stem))
        runs = tuple(_runs(content, path.parent))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return Plan(folder if out is None else Path(out).absolute(), path.parent, runs)


def _runs(content: dict[str, Any], base: Path) -> Iterator[Run]:
    _only(content, _TOP, "a sweep")
    tables = content.get("sde", [])
    if not _are_tables(tables):
        raise ValueError(
            'name an SDE at least, such as [[sde]] with `model = "benes"` or `file = "own.py:sde"`.'
        )
    common = {name: content[name] for name in _SHARED if name in content}
    fixed = {
        "certify": _flag("certify", content.get("certify", True)),
        "error_starts": _count("error_starts", content.get("error_starts", 16)),
        "memory_limit": content.get("memory_limit"),
    }
    seen: set[str] = set()
    for table in tables:
        for run in _of_sde(table, common, fixed, base):
            if run.name in seen:
                raise ValueError(f"the run {run.label()} with seed {run.seed} is there twice.")
            seen.add(run.name)
            require_sound(run, base)
            yield run


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _of_sde(
    table: dict[str, Any], common: dict[str, Any], fixed: dict[str, Any], base: Path
) -> Iterator[Run]:
    _only(table, _SDE, "an SDE")
    settings = _table("settings", common.get("settings", {}))
    settings = settings | _table("settings", table.get("settings", {}))
    _only(settings, [field.name for field in dataclasses.fields(Settings)], "settings")
    merged = {"preset": "accurate", "seed": 0} | common | table
    shared = {
        name: merged.get(name)
        for name in ("preset", "seed", "horizon", "starts", "params", "start_time")
    }
    for problem in _problems(table, base):
        for others in _product(shared):
            for chosen in _product(settings):
                yield Run(**problem, **others, settings=chosen, **fixed)


def _problems(table: dict[str, Any], base: Path) -> Iterator[dict[str, Any]]:
    if ("model" in table) == ("file" in table):
        raise ValueError("an SDE is either a `model` of diracflow's or in a `file`, FILE.py:NAME.")
    arguments = _table("arguments", table.get("arguments", {}))
    if "file" in table:
        if arguments:
            raise ValueError("only a `model` of diracflow's has `arguments`; a `file` has none.")
        for file in _alternatives(table["file"]):
            _text("file", file)
            yield {"model": None, "arguments": {}, "file": file, "digest": digest_of(file, base)}
        return
    for name in _alternatives(table["model"]):
        if name not in MODELS:
            raise ValueError(
                f"no built-in model is called {name!r}; there are {', '.join(MODELS)}."
            )
        _only(arguments, inspect.signature(MODELS[name]).parameters, f"the model {name}")
        for chosen in _product(arguments):
            yield {"model": name, "arguments": chosen, "file": None, "digest": None}


def _product(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice of one alternative for each name."""
    for name, value in table.items():
        if value == []:
            raise ValueError(f"`{name}` is an empty list: there is nothing to run.")
    for values in itertools.product(*map(_alternatives, table.values())):
        yield dict(zip(table, values, strict=True))


def _alternatives(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _only(table: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    known = list(known)
    unknown = [name for name in table if name not in known]
    if unknown:
        raise ValueError(f"{what} has no {unknown[0]!r}; known: {', '.join(known) or 'nothing'}.")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"`{name}` must be a table of names and values; got {value!r}.")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{name}` must be a text; got {value!r}.")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false, for the whole sweep; got {value!r}.")
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"`{name}` must be a whole number, at least 0; got {value!r}.")
    return value
