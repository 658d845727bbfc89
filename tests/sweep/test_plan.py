"""What plans say, and what is refused before anything runs."""

import pytest

from diracflow.sweep import read_plan
from diracflow.sweep.sweep_run import from_json, problem_of

OWN = """
import jax.numpy as jnp
import diracflow as df
sde = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
"""
STARTS = 'starts = {law = "Normal", mean = 0, std = 1}'


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "own.py").write_text(OWN)

    def read(text, **options):
        (tmp_path / "study.toml").write_text(text)
        return read_plan(tmp_path / "study.toml", **options)

    return read


def test_runs_are_the_product_of_all_lists(plan, tmp_path):
    found = plan(
        f"""
        preset = "quick"
        seed = [0, 1, 2]
        settings = {{hidden = [4, 8], tolerance = 1e-2}}
        [[sde]]
        model = "benes"
        arguments = {{dim = [1, 2]}}
        [[sde]]
        file = "own.py:sde"
        {STARTS}
        horizon = [0.5, 1.0]
        seed = 7
        settings = {{hidden = 3}}
        """
    )
    assert found.out == tmp_path / "study"
    assert len(found.runs) == 3 * 2 * 2 + 2
    assert len({run.name for run in found.runs}) == len(found.runs)
    dims = {problem_of(run, found.base).sde.dim for run in found.runs if run.model == "benes"}
    assert dims == {1, 2}
    own = found.runs[-2:]
    assert [problem_of(run, found.base).horizon for run in own] == [0.5, 1.0]
    assert {(run.seed, run.settings["hidden"], run.settings["tolerance"]) for run in own} == {
        (7, 3, 1e-2)
    }


def test_names_of_runs_do_not_depend_on_the_others(plan):
    few = plan('seed = 1\n[[sde]]\nmodel = "benes"')
    many = plan('seed = [0, 1]\n[[sde]]\nmodel = ["brownian", "benes"]')
    assert {run.name for run in few.runs} < {run.name for run in many.runs}


def test_a_changed_file_is_another_run(plan, tmp_path):
    text = f'horizon = 1\n{STARTS}\n[[sde]]\nfile = "own.py:sde"'
    before = plan(text).runs[0]
    (tmp_path / "own.py").write_text(OWN.replace("0.7", "0.8"))
    after = plan(text).runs[0]
    assert before.name != after.name


def test_a_run_survives_its_file(plan, tmp_path):
    found = plan('settings = {allowance = inf}\n[[sde]]\nmodel = "benes"')
    run, folder = found.runs[0], found.folder(found.runs[0])
    folder.prepare(run)
    assert folder.run() == run
    assert from_json((folder.path / "run.json").read_text()).name == run.name


SDE = '[[sde]]\nmodel = "benes"\n'


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "name an SDE at least"),
        ("sde = 3", "name an SDE at least"),
        (f"seeds = [0]\n{SDE}", "has no 'seeds'; known: out, .*seed"),
        (f"{SDE}dim = 2", "an SDE has no 'dim'; known: model, arguments"),
        (f"settings = {{width = 3}}\n{SDE}", "settings has no 'width'; known: tolerance"),
        (f"{SDE}arguments = {{size = 2}}", "the model benes has no 'size'; known: angle, dim"),
        ('[[sde]]\nmodel = "bens"', "no built-in model is called 'bens'; there are brownian"),
        (f'{SDE}file = "own.py:sde"', "either a `model`"),
        ('[[sde]]\nfile = "other.py:sde"', "there is no file .*other.py"),
        ('[[sde]]\nfile = "own.py:sde"', "give `starts`"),
        (f'{STARTS}\nhorizon = 1\n[[sde]]\nfile = "own.py:other"', "defines no 'other'.*sde"),
        (f"seed = [0, 0]\n{SDE}", "is there twice"),
        (f"seed = []\n{SDE}", "`seed` is an empty list"),
        (f"seed = -1\n{SDE}", "`seed` must be a whole number"),
        (f"horizon = 0\n{SDE}", "`horizon` must be a positive number"),
        (f'preset = "fast"\n{SDE}', "`preset` must be one of quick"),
        (f"settings = {{hidden = [4, 0]}}\n{SDE}", "`hidden` must be a whole number"),
        (f"{SDE}starts = {{law = 'Gauss'}}", "`starts` must be a law"),
        (f"certify = [true, false]\n{SDE}", "`certify` must be true or false"),
        ("seed = 0 1", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused(text, said, plan):
    with pytest.raises(ValueError, match=f"study.toml.*{said}"):
        plan(text)
