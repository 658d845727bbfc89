"""Commands that evaluate a model, run in this process for speed."""

import json
import sys
import warnings

import numpy as np
import pytest
import xarray

import diracflow as df
from diracflow.cli import app, inputs
from diracflow.cli.tables import read_series
from diracflow.models.catalogue import named_object
from helpers import still_density


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A model whose flow is the identity: its source is exact for linear SDEs."""
    path = tmp_path_factory.mktemp("model") / "model.dflow"
    still_density(df.models.ornstein_uhlenbeck(2), 1.0, hidden=4).save(path)
    return path


@pytest.fixture(scope="module")
def density(file):
    return df.load(file)


@pytest.fixture
def invoke(file, density, monkeypatch, tmp_path, capsys):
    """Call a command on the model, loaded once: each load compiles its programs again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "prepare_jax", lambda: None)
    monkeypatch.setattr(inputs, "load", lambda path, sde: {file: density}[path])

    def call(command, *arguments):
        monkeypatch.setattr(sys, "argv", ["diracflow", command, str(file), *arguments])
        with pytest.raises(SystemExit) as end:
            app.main()
        return end.value.code, *capsys.readouterr()

    return call


def test_density_reads_points_and_writes_tables(invoke, density, tmp_path):
    points = np.array([[0.1, 0.2], [-0.4, 0.0], [0.3, -0.7]])
    exact = np.asarray(density.log_prob(points, 0.7, [0.5, -0.2]))
    np.savez(tmp_path / "in.npz", x=points)
    (tmp_path / "in.csv").write_text("a,b\n" + "\n".join(f"{x},{y}" for x, y in points) + "\n")
    where = ["--t", "0.7", "--x0", "0.5,-0.2"]
    _, printed, _ = invoke("density", *where, "--points", "in.csv")
    assert printed.splitlines()[0] == "x1,x2,log_prob"
    table = np.loadtxt(printed.splitlines()[1:], delimiter=",")
    # Ten digits are printed.
    np.testing.assert_allclose(table, np.column_stack([points, exact]), rtol=1e-9)
    code, out, _ = invoke("density", *where, "--points", "in.npz", "-o", "out.npz", "--json")
    assert code == 0
    np.testing.assert_allclose(json.loads(out)["log_prob"], exact, rtol=1e-12)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["log_prob"], exact, rtol=1e-12)
    _, out, _ = invoke("density", *where, "--x", "-0.4,0.0", "--json")
    np.testing.assert_allclose(json.loads(out)["log_prob"], exact[1:2], rtol=1e-12)


def test_float32_is_taken_where_asked(invoke, density):
    where = ["--t", "0.7", "--x0", "0.5,-0.2", "--x", "-0.4,0.3", "--json"]
    (double,), (single,) = (
        json.loads(invoke("density", *where, *option)[1])["log_prob"]
        for option in ([], ["--float32"])
    )
    assert single == float(np.float32(single))
    # A few rounding errors of numbers of size one.
    assert 0 < abs(single - double) < 1e-5


def test_sample_is_fixed_by_its_seed(invoke, tmp_path):
    where = ["--t", "0.7", "--x0", "0.5,-0.2", "-n", "5"]
    code, out, _ = invoke("sample", *where, "--seed", "3", "-o", "draws.csv")
    assert (code, out) == (0, "")
    draws = np.loadtxt(tmp_path / "draws.csv", delimiter=",", skiprows=1)
    again = json.loads(invoke("sample", *where, "--seed", "3", "--json")[1])["x"]
    np.testing.assert_allclose(draws, again, rtol=1e-9)
    assert json.loads(invoke("sample", *where, "--json")[1])["x"] != again


@pytest.mark.slow
def test_bridge_leaves_paths_and_a_figure(invoke, tmp_path):
    where = ["--t", "0.7", "--x0", "0.5,-0.2", "--x1", "-0.4,0.1"]
    few = ["--steps", "10", "--paths", "20", "--figure", "fan.png"]
    code, out, err = invoke("bridge", *where, *few, "-o", "paths.npz")
    assert code == 0, err
    assert "effective sample size" in out
    saved = np.load(tmp_path / "paths.npz")
    assert saved["paths"].shape == (20, 11, 2)
    assert (tmp_path / "fan.png").stat().st_size > 5000
    code, out, _ = invoke("bridge", *where, *few, "-o", "paths.csv", "--json")
    assert 0.5 < json.loads(out)["effective_share"] <= 1
    table = np.loadtxt(tmp_path / "paths.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(table[:, 2:4], saved["paths"].reshape(-1, 2), rtol=1e-9)


TIMES, STATES = (
    np.array([0.0, 0.3, 0.7, 1.2]),
    np.array([[0.1, 0], [0.4, 0.2], [-0.3, 0.1], [0, 0]]),
)


def write_series(path, values):
    rows = np.column_stack([TIMES, values])
    path.write_text("time,a\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")


def test_loglik_of_a_path(invoke, density, tmp_path):
    write_series(tmp_path / "path.csv", STATES)
    np.savez(tmp_path / "path.npz", times=TIMES, states=STATES)
    expected = float(df.log_likelihood(density, TIMES, STATES))
    for name in ("path.csv", "path.npz"):
        code, out, err = invoke("loglik", name, "--json")
        assert code == 0, err
        assert json.loads(out) == {
            "log_likelihood": pytest.approx(expected, rel=1e-9),
            "transitions": 3,
            "outside": 0.0,
        }
    assert invoke("loglik", "path.csv")[1].startswith(f"{expected:.6g}")


def test_filter_of_one_component(invoke, tmp_path):
    (tmp_path / "seen.csv").write_text("time,y\n0.3,0.4\n0.7,\n1.2,-0.1\n")
    where = ["seen.csv", "--noise", "0.2", "--components", "2", "--particles", "200"]
    code, out, err = invoke("filter", *where, "-o", "out.csv", "--figure", "bands.png", "--json")
    assert code == 0, err
    assert np.shape(json.loads(out)["means"]) == (3, 2)
    table = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
    assert table.shape == (3, 1 + 2 + 2 + 3 * 2)
    # The mean of the second component moves towards its observation.
    assert table[0, 2] > 0.2
    assert (tmp_path / "bands.png").stat().st_size > 5000


def test_smoother_writes_laws_and_paths(invoke, tmp_path):
    (tmp_path / "seen.csv").write_text("time,y\n0.3,0.4\n0.7,\n1.2,-0.1\n")
    where = ["seen.csv", "--noise", "0.2", "--components", "2", "--particles", "200"]
    code, out, err = invoke("smooth", *where, "-o", "out.nc", "--json")
    assert code == 0, err
    found = xarray.open_dataset(tmp_path / "out.nc", engine="h5netcdf")
    assert found["state"].shape == (200, 3, 2)
    np.testing.assert_allclose(found["state"].mean("path"), json.loads(out)["means"], rtol=1e-9)
    assert "named .nc; got out.csv" in invoke("smooth", *where, "-o", "out.csv")[2]


def test_forecast_writes_netcdf_and_a_page(invoke, tmp_path):
    xarray, pandas = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    days = [f"2020-01-0{day},{value}" for day, value in enumerate((0.4, -0.1, 0.2, 0.3, 0.1), 1)]
    (tmp_path / "seen.csv").write_text("date,y\n" + "\n".join(days) + "\n")
    where = ["--noise", "0.2", "--until", "6", "-n", "4", "--particles", "100", "--components", "2"]
    outputs = ["--unit", "day", "--report", "page.html", "--figure", "fan.png", "--json"]
    code, out, err = invoke("forecast", "seen.csv", *where, *outputs)
    assert code == 0, err
    table = xarray.load_dataset(tmp_path / "forecast.nc", engine="h5netcdf")
    np.testing.assert_allclose(table["time"], [4.5, 5.0, 5.5, 6.0])
    np.testing.assert_allclose(table["mean"], json.loads(out)["means"], rtol=1e-12)
    page = (tmp_path / "page.html").read_text()
    assert "the smallest p-value is" in page
    assert "<script" not in page
    assert page.count("<svg") == 3
    assert (tmp_path / "fan.png").stat().st_size > 5000
    frame = pandas.read_csv(tmp_path / "seen.csv", index_col=0, parse_dates=True)
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "seen.parquet")
    for unit in ("day", "second"):
        times, values = read_series(tmp_path / "seen.parquet", unit=unit)
        np.testing.assert_allclose(times, np.arange(5.0) * (1 if unit == "day" else 86_400))
        np.testing.assert_array_equal(values, frame.to_numpy())


@pytest.mark.slow
def test_propagate_at_points_and_by_draws(invoke, density, tmp_path):
    np.savez(tmp_path / "at.npz", x=STATES)
    law = ["--law", '{"law": "Normal", "mean": 0.2, "std": 0.4}']
    code, out, err = invoke("propagate", "--t", "0.5", *law, "--points", "at.npz", "--json")
    assert code == 0, err
    expected = df.propagate(density, df.Normal(0.2, 0.4), 0.5).log_prob(STATES)
    np.testing.assert_allclose(json.loads(out)["log_prob"], expected, rtol=1e-9)
    code, out, _ = invoke("propagate", "--t", "0.5", "--draws", "at.npz", "-n", "7")
    assert (code, len(out.splitlines())) == (0, 8)


AT = ["--t", "0.1", "--x0", "0,0"]
WRONG_USES = {
    "beyond horizon": (["density", "--t", "9", "--x0", "0,0", "--x", "0,0"], "must lie in"),
    "nowhere": (["density", *AT], "Give either `--x`"),
    "short point": (["density", *AT, "--x", "1"], "`--x` needs 2 numbers"),
    "words": (["density", *AT, "--x", "a,b"], "comma-separated numbers"),
    "absent points": (["density", *AT, "--points", "no.csv"], "no.csv"),
    "other format": (["sample", *AT, "-o", "draws.xlsx"], ".csv or .npz"),
    "no folder": (["sample", *AT, "-o", "no/draws.csv"], "no folder"),
    "no draws": (["sample", *AT, "-n", "0"], "Invalid value for '--count'"),
    "one step": (["bridge", *AT, "--x1", "0,0", "--steps", "1"], "at least 2"),
    "path of another dimension": (["loglik", "absent.csv"], "absent.csv"),
    "no law": (["propagate", "--t", "0.1"], "Give the initial law"),
    "a law that is not JSON": (["propagate", "--t", "0.1", "--law", "normal"], "written as JSON"),
    "unnamed SDE": (["sample", *AT, "--sde", "own.py"], "FILE.py:NAME"),
    "absent SDE": (["sample", *AT, "--sde", "own.py:sde"], "No Python file at own.py"),
}


@pytest.mark.parametrize("arguments, message", WRONG_USES.values(), ids=WRONG_USES)
def test_wrong_uses_get_one_clear_line(arguments, message, invoke, tmp_path):
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir()), "a mistake must leave nothing behind"


NOISY = ["--observe", "0.2", "--initial", '{"law": "Normal"}', "--particles", "5"]


@pytest.mark.slow
@pytest.mark.parametrize("noisy", [[], [*NOISY, "--checkpoint", "run"]], ids=["exact", "noisy"])
def test_infer_writes_a_posterior(noisy, monkeypatch, tmp_path, capsys):
    pytest.importorskip("numpyro")
    monkeypatch.chdir(tmp_path)
    write_series(tmp_path / "path.csv", STATES[:, :1])
    priors = {"rate": [0, 0.5], "level": [-1, 0.5], "noise": [0, 0.5]}
    prior = {n: {"law": "LogNormal", "mean": m, "std": s} for n, (m, s) in priors.items()}
    small = ["--chains", "2", "--draws", "20", "--warmup", "20", "-o", "p.nc", "--json"]
    arguments = ["infer", "ou", "path.csv", "--prior", json.dumps(prior), *small, *noisy]
    monkeypatch.setattr(sys, "argv", ["diracflow", *arguments, "--figure", "pairs.png"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the chains are too short to mix
        with pytest.raises(SystemExit) as end:
            app.main()
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert set(json.loads(out)) == set(priors)
    assert (tmp_path / "p.nc").stat().st_size > 1000
    assert (tmp_path / "pairs.png").stat().st_size > 5000
    assert (tmp_path / "run").exists() == bool(noisy)


def test_a_missing_value_in_the_first_row_is_no_header(tmp_path):
    (tmp_path / "seen.csv").write_text("0.3,,1\n0.7,2,3\n")
    times, values = read_series(tmp_path / "seen.csv")
    np.testing.assert_array_equal(times, [0.3, 0.7])
    np.testing.assert_array_equal(values, [[np.nan, 1.0], [2.0, 3.0]])


def test_an_sde_is_found_in_a_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import jax.numpy as jnp\nimport diracflow as df\nother = 1\n"
        "sde = df.SDE(lambda t, x: -x, lambda t, x: jnp.eye(1), 1)\n"
    )
    assert named_object(f"{file}:sde").dim == 1
    with pytest.raises(ValueError, match=r"must be a `diracflow.SDE` or.*; found int"):
        named_object(f"{file}:other")
