"""Code in README and documentation runs, and lists there are complete.

`df.learn` is replaced by one that checks what it is given and moves nothing: what comes after it is
run for real. The slow tests learn. A block after the line `<!-- not run -->` is left out.
"""

import importlib.util
import inspect
import json
import pathlib
import re
import shutil
import warnings

import pytest

import diracflow as df
from diracflow.cli.app import app
from diracflow.models.catalogue import Model
from helpers import still_density

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROSE = sorted([*ROOT.glob("*.md"), *ROOT.glob("[bdex]*/**/*.md")])
_SPEC = importlib.util.spec_from_file_location("notebook_pages", DOCS / "notebook_pages.py")
notebook_pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebook_pages)
_BLOCK = re.compile(r"(<!-- not run -->\n+)?```python\n(.*?)```", flags=re.DOTALL)


def code(path):
    """All that is to be run of a page, as one program."""
    found = _BLOCK.findall(path.read_text("utf-8"))
    return "\n".join(text for skipped, text in found if not skipped)


def unmoved(sde, starts, horizon, *, key, params=None, start_time=0.0, progress=False, **settings):
    """A density that has learned nothing, for arguments that `df.learn` would take."""
    df.Settings(**{k: v for k, v in settings.items() if k not in ("preset", "certify")})
    return still_density(Model("own", sde, starts, horizon, None, params or {}, start_time))


def run(path, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", df.OutsideWarning)
        # In brackets: else the source of functions would be looked for in the page.
        exec(compile(code(path), f"<{path.name}>", "exec"), {})


@pytest.mark.slow
def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(df, "learn", unmoved)
    run(ROOT / "README.md", tmp_path, monkeypatch)
    assert (tmp_path / "model.dflow").exists()


# Pages whose densities are really learned: coordinates of domains and own classes need it.
LEARNED = {"domains.md", "extending.md"}
FAST = {"index.md", "extending.md"}


def pages():
    """Pages with code, those that take long marked as slow."""
    for path in sorted(DOCS.glob("*.md")):
        if code(path) and path.name != "gallery.md":  # run by `docs/make_gallery.py`
            marks = [] if path.name in FAST else [pytest.mark.slow]
            yield pytest.param(path.name, marks=marks, id=path.stem)


@pytest.mark.parametrize("name", pages())
def test_pages_run(name, tmp_path, monkeypatch):
    """Blocks of a page run in order and need nothing else."""
    if name not in LEARNED:
        monkeypatch.setattr(df, "learn", unmoved)
    run(DOCS / name, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCS.glob("notebooks/*.ipynb"), ids=lambda path: path.stem)
def test_notebooks_run_and_draw(path, tmp_path):
    """In a copy of their folder, as for a user who downloads it."""
    shutil.copytree(path.parent, tmp_path / "notebooks")
    assert notebook_pages.page(tmp_path / "notebooks" / path.name).pictures


def test_notebooks_are_kept_without_outputs():
    for path in DOCS.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells)


def test_pictures_of_pages_exist():
    for path in PROSE:
        found = re.findall(r"!\[[^\]]*\]\((?!https)([^)]+)\)", path.read_text("utf-8"))
        assert [name for name in found if not (path.parent / name).exists()] == []


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_short(path):
    """Under 120 characters, but for rows of tables."""
    lines = path.read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) >= 120 and not line.startswith("|")] == []


def test_the_reference_holds_every_public_name():
    pages = "".join(path.read_text("utf-8") for path in DOCS.glob("reference_*.md"))
    listed = {line.split(".")[-1] for line in re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)}
    rooms = {"evaluate", "models", "sweep", "view", "numpyro"}
    assert set(df._PUBLIC) - rooms <= listed
    figures = {name for name, value in vars(df.view).items() if inspect.isfunction(value)}
    assert figures <= listed
    assert {make.__module__.split(".")[-1] for make in df.models.MODELS.values()} <= listed


def test_the_command_line_is_listed():
    text = (DOCS / "commands.md").read_text("utf-8")
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    missing = [name for name in names if f"`diracflow {name.rstrip('_')} " not in text]
    assert not missing


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    assert all((ROOT / link).exists() for link in links if "://" not in link)


def test_numbers_of_the_readme_are_those_of_the_benchmarks():
    """Errors in the tables: each is written in the page that has its command."""
    measured = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    text = (ROOT / "README.md").read_text("utf-8")
    errors = re.findall(r"\b\d(?:\.\d)?e-\d+", text)
    assert errors
    assert [error for error in errors if error not in measured] == []
