"""Reading sweeps from TOML files, and errors found before anything runs."""

import pytest

from diracflow.sweep import read_sweep

OWN = """
import jax.numpy as jnp
import diracflow as df
sde = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
"""
STARTS = 'starts = {law = "Normal", mean = 0, std = 1}'


@pytest.fixture
def sweep(tmp_path):
    (tmp_path / "own.py").write_text(OWN)

    def read(text, **options):
        (tmp_path / "study.toml").write_text(text)
        return read_sweep(tmp_path / "study.toml", **options)

    return read


def test_runs_are_the_product_of_all_lists(sweep, tmp_path):
    found = sweep(
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
    dims = {run.problem(found.base).sde.dim for run in found.runs if run.model == "benes"}
    assert dims == {1, 2}
    own = found.runs[-2:]
    assert [run.problem(found.base).horizon for run in own] == [0.5, 1.0]
    assert {(run.seed, run.settings["hidden"], run.settings["tolerance"]) for run in own} == {
        (7, 3, 1e-2)
    }


def test_names_of_runs_do_not_depend_on_the_others(sweep):
    few = sweep('seed = 1\n[[sde]]\nmodel = "benes"')
    many = sweep('seed = [0, 1]\n[[sde]]\nmodel = ["brownian", "benes"]')
    assert {run.name for run in few.runs} < {run.name for run in many.runs}


def test_a_changed_file_is_another_run(sweep, tmp_path):
    text = f'horizon = 1\n{STARTS}\n[[sde]]\nfile = "own.py:sde"'
    before = sweep(text).runs[0]
    (tmp_path / "own.py").write_text(OWN.replace("0.7", "0.8"))
    after = sweep(text).runs[0]
    assert before.name != after.name


def test_a_run_is_read_back_from_its_folder(sweep):
    found = sweep('settings = {allowance = inf}\n[[sde]]\nmodel = "benes"')
    run, folder = found.runs[0], found.folder(found.runs[0])
    folder.prepare(run)
    assert folder.run() == run
    assert folder.run().name == run.name


SDE = '[[sde]]\nmodel = "benes"\n'


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "name at least one SDE"),
        ("sde = 3", "name at least one SDE"),
        (f"seeds = [0]\n{SDE}", "has no 'seeds'; known: out, .*seed"),
        (f"{SDE}dim = 2", "an SDE has no 'dim'; known: model, arguments"),
        (f"settings = {{width = 3}}\n{SDE}", "settings has no 'width'; known: tolerance"),
        (
            f"{SDE}arguments = {{size = 2}}",
            "The model benes has no argument 'size'; it has angle, dim",
        ),
        ('[[sde]]\nmodel = "bens"', "No built-in model is called 'bens'; there are .*brownian"),
        (f'{SDE}file = "own.py:sde"', "either a built-in `model`"),
        ('[[sde]]\nfile = "other.py:sde"', "there is no file .*other.py"),
        ('[[sde]]\nfile = "own.py:sde"', "give `starts`"),
        (f'{STARTS}\nhorizon = 1\n[[sde]]\nfile = "own.py:other"', "defines no 'other'.*sde"),
        (f"seed = [0, 0]\n{SDE}", "occurs twice"),
        (f"seed = []\n{SDE}", "`seed` is an empty list"),
        (f"seed = -1\n{SDE}", "`seed` must be at least 0"),
        (f"seed = 1.5\n{SDE}", "`seed` must be a whole number"),
        (f"seed = 4294967296\n{SDE}", "`seed` must be less than 2\\^32"),
        (f"horizon = 0\n{SDE}", "`horizon` must be a positive number"),
        (f'preset = "fast"\n{SDE}', "`preset` must be one of quick"),
        (f"settings = {{hidden = [4, 0]}}\n{SDE}", "`hidden` must be a whole number"),
        (f"{SDE}starts = {{law = 'Gauss'}}", "`starts` must be a law"),
        (f"certify = [true, false]\n{SDE}", "`certify` must be True or False"),
        ("seed = 0 1", "is not TOML"),
    ],
)
def test_mistakes_are_errors(text, message, sweep):
    with pytest.raises(ValueError, match=f"study.toml.*{message}"):
        sweep(text)
