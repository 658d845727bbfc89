"""Reading a sweep from a TOML file.

A list is allowed wherever a value is, and the runs are the product of all lists. Unknown names are
errors: a misspelt name would otherwise be ignored, and the sweep would not vary what it should.
"""

import dataclasses
import hashlib
import itertools
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..planning.settings import Settings
from ..sde.argument_checks import checked_count, checked_flag
from .sweep_runs import Run, Sweep

# Keys that apply to all SDEs, or to one of them if they are in its table.
_SWEPT = ("preset", "seed", "horizon", "starts", "params", "start_time")
_SHARED = (*_SWEPT, "settings")
_TOP = ("out", "certify", "error_starts", "memory_limit", *_SHARED, "sde")
_SDE = ("model", "arguments", "file", *_SHARED)


def read_sweep(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Sweep:
    """Read a sweep from a TOML file and check all of its runs.

    **Arguments:**

    - `path`: the file. Paths in it are relative to its directory.
    - `out`: the directory of the sweep. It replaces `out` in the file, whose default is the
        file's name without its suffix.
    """
    path = Path(path).absolute()
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not TOML: {error}.") from None
    if out is None and not path.suffix:
        raise ValueError(
            f"{path.name} has no suffix such as .toml, so the directory of the sweep cannot be "
            "named after it. Give the directory as `out`."
        )
    try:
        folder = path.parent / _text("out", content.pop("out", path.stem))
        runs = tuple(_runs(content, path.parent))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return Sweep(folder if out is None else Path(out).absolute(), path.parent, runs)


def _runs(content: dict[str, Any], base: Path) -> Iterator[Run]:
    _require_known(content, _TOP, "a sweep")
    tables = content.get("sde")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise ValueError(
            "name at least one SDE, such as [[sde]] with "
            '`model = "benes"` or `file = "own.py:sde"`.'
        )
    common = {name: content[name] for name in _SHARED if name in content}
    fixed: dict[str, Any] = {
        "certify": checked_flag("certify", content.get("certify", True)),
        "error_starts": checked_count("error_starts", content.get("error_starts", 16), 0),
        "memory_limit": content.get("memory_limit"),
    }
    names: set[str] = set()
    for table in tables:
        for values in _combinations(table, common, base):
            run = Run(**values, **fixed)
            run.check(base)
            if run.name in names:
                raise ValueError(f"the run {run.label} with seed {run.seed} occurs twice.")
            names.add(run.name)
            yield run


def _combinations(
    table: dict[str, Any], common: dict[str, Any], base: Path
) -> Iterator[dict[str, Any]]:
    """Yield the fields of each run of one SDE."""
    _require_known(table, _SDE, "an SDE")
    settings = _table("settings", common) | _table("settings", table)
    _require_known(settings, [field.name for field in dataclasses.fields(Settings)], "settings")
    if ("model" in table) == ("file" in table):
        raise ValueError("an SDE needs either a built-in `model` or a `file`, FILE.py:NAME.")
    arguments = _table("arguments", table)
    if "file" in table and arguments:
        raise ValueError("only a built-in `model` takes `arguments`; a `file` takes none.")
    merged = {"preset": "accurate", "seed": 0} | common | table
    swept = {name: merged.get(name) for name in _SWEPT}
    for source in _product({name: table.get(name) for name in ("model", "file")}):
        digest = None
        if "file" in table:
            path = base / _text("file", source["file"]).rpartition(":")[0]
            if not path.is_file():
                raise ValueError(f"`file` must be FILE.py:NAME; there is no file {path}.")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        combined = itertools.product(*map(_product, (arguments, swept, settings)))
        for chosen, values, changes in combined:
            yield {**source, **values, "arguments": chosen, "digest": digest, "settings": changes}


def _product(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of one alternative for each name."""
    for name, value in table.items():
        if value == []:
            raise ValueError(f"`{name}` is an empty list, so there is nothing to run.")
    lists = [value if isinstance(value, list) else [value] for value in table.values()]
    for values in itertools.product(*lists):
        yield dict(zip(table, values, strict=True))


def _require_known(table: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    known = list(known)
    for name in table:
        if name not in known:
            raise ValueError(f"{what} has no {name!r}; known: {', '.join(known) or 'nothing'}.")


def _table(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"`{name}` must be a table of names and values; got {value!r}.")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{name}` must be a non-empty string; got {value!r}.")
    return value
