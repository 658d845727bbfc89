"""Each room imports only from rooms upstream of it in the data flow."""

import ast
import pathlib

import pytest

ROOMS = (
    *("storage", "sde", "distribution", "transition", "models", "equation", "source"),
    *("flow", "galerkin", "planning", "training", "certify", "density", "learning"),
    *("uses", "hidden", "inference", "evaluate", "sweep", "view", "explore", "cli"),
)
PACKAGE = pathlib.Path(__file__).parents[1] / "src" / "diracflow"


def imported_names(path):
    depth = len(path.relative_to(PACKAGE).parts)  # dots that lead out of the room
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diracflow"):
            yield node.module.split(".")[1]
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield (node.module or "").split(".")[0]
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_upstream(room):
    paths = [*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/*.py")]
    assert paths, "a room is missing; update ROOMS"
    downstream = set(ROOMS[ROOMS.index(room) + 1 :])
    for path in paths:
        assert not downstream.intersection(imported_names(path)), path


def test_every_room_is_listed():
    found = {p.stem for p in PACKAGE.iterdir() if p.is_dir() and not p.name.startswith("__")}
    found |= {p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__"}
    assert found == set(ROOMS)
