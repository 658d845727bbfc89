"""Code in README and documentation runs, and lists there are complete.

`df.learn` is replaced by one that checks what it is given and moves nothing: what comes after it is
run for real. The slow tests learn. A block after the line `<!-- not run -->` is left out.
"""

import inspect
import pathlib
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.cli.app import app
from diracflow.models.model import Model
from helpers import still_density

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"(<!-- not run -->\n+)?```python\n(.*?)```", flags=re.DOTALL)


def code(path):
    """All that is to be run of a page, as one program."""
    found = _BLOCK.findall(path.read_text("utf-8"))
    return "\n".join(text for skipped, text in found if not skipped)


def unmoved(sde, starts, horizon, *, key, params=None, start_time=0.0, progress=False, **settings):
    """A density that has learned nothing, for arguments that `df.learn` would take."""
    df.Settings(**{k: v for k, v in settings.items() if k not in ("preset", "certify")})
    return still_density(Model("own", sde, starts, horizon, None, params or {}, start_time))


def run(path, folder, monkeypatch, **names):
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", df.OutsideWarning)
        # In brackets: else the source of functions would be looked for in the page.
        exec(compile(code(path), f"<{path.name}>", "exec"), names)


@pytest.mark.parametrize(
    "name", [pytest.param("README.md", marks=pytest.mark.slow), "docs/index.md"]
)
def test_front_pages_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(df, "learn", unmoved)
    run(ROOT / name, tmp_path, monkeypatch)
    assert (tmp_path / "model.dflow").exists()


@pytest.mark.slow
def test_tutorial_runs(tmp_path, monkeypatch):
    run(DOCS / "tutorial.md", tmp_path, monkeypatch)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"joint.pdf", "planes.svg", "report.html", "benes.dflow"}


def examples():
    """What pages take for granted."""
    ou = df.models.ornstein_uhlenbeck(2)
    times = jnp.linspace(0.0, 4.0, 9)
    return {
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "df": df,
        "key": jax.random.key(0),
        "norm": jax.scipy.stats.norm,
        "density": still_density(ou),
        "times": times,
        "x": jnp.zeros(2),
        "x0": jnp.zeros(2),
        "x1": jnp.ones(2),
        "t": 0.5,
    }


PAGES = {
    "bridges.md": {"observations": jnp.zeros((9, 1))},
    "domains.md": {},
    "figures.md": {},
    "laws.md": {},
    "noisy_data.md": {},
    "other_libraries.md": {},
    "own_sde.md": {},
    "parameters.md": {},
    "uses.md": {"states": 0.1 * jnp.cos(jnp.arange(9.0))[:, None]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_pages_run(name, tmp_path, monkeypatch):
    if name != "domains.md":  # whose coordinates only `learn` finds
        monkeypatch.setattr(df, "learn", unmoved)
    run(DOCS / name, tmp_path, monkeypatch, **examples(), **PAGES[name])


def test_the_page_on_extensions_runs(tmp_path, monkeypatch):
    """Objects of a user's own are learned with, saved and loaded."""
    run(DOCS / "extending.md", tmp_path, monkeypatch)
    assert (tmp_path / "decay.dflow").exists()


def test_every_page_with_code_is_run():
    with_code = {path.name for path in DOCS.glob("*.md") if code(path)}
    assert with_code == {"index.md", "tutorial.md", "extending.md", *PAGES}


def test_every_status_has_an_answer():
    entries = re.findall(r"^### `(\w+)`$", (DOCS / "faq.md").read_text("utf-8"), flags=re.MULTILINE)
    assert set(entries) == set(df.Status.__members__)


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
