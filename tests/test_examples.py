"""Examples run, say what they claim, and stay short."""

import importlib.util
import pathlib

import numpy as np
import pytest

import diracflow as df

FOLDER = pathlib.Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", list(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) <= 80


def test_benes_bridge(tmp_path, capsys):
    paths = example("benes_bridge").main(figure=tmp_path / "fan.png")
    assert paths.effective_share > 0.9
    assert "Brownian bridge" in capsys.readouterr().out
    assert (tmp_path / "fan.png").stat().st_size > 5000


@pytest.mark.slow
def test_double_well_filter_on_an_exact_density(tmp_path):
    """Beneš in one dimension, whose density splits as well, spares the learning."""
    main = example("double_well_filter").main
    errors, inside = main(df.models.benes(dim=1).exact, tmp_path / "bands.png")
    assert errors[1] < errors[0], "a filter must beat the observations"
    # Forty states in bands of 90 %, five standard deviations of a binomial law allowed for.
    assert inside > 0.9 - 5 * np.sqrt(0.9 * 0.1 / 40)
    assert (tmp_path / "bands.png").stat().st_size > 5000


@pytest.mark.slow
def test_euler_is_biased_where_the_density_is_not():
    module = example("coarse_ou")
    found, true = module.main(), module.TRUE
    for name, value in true.items():
        # Four standard errors: exceeded by one of three efficient estimates for one path in 5000.
        error = found["density"].standard_errors[name]
        assert abs(found["density"].params[name] - value) < 4 * error
    for name in ("rate", "noise"):
        # Euler's limits are (1 - exp(-1.2)) = 0.70 and 0.49: many standard errors away.
        error = found["Euler"].standard_errors[name]
        assert abs(found["Euler"].params[name] - true[name]) > 8 * error


@pytest.mark.slow
def test_the_filtered_variance_follows_the_vix(tmp_path):
    pytest.importorskip("arch")
    grid = {"rate": [10.0], "level": [0.02], "noise": [0.4], "correlation": [-0.6, -0.9]}
    params, volatility, check = example("sp500_variance").main(grid, 500, tmp_path / "sp500.png")
    assert set(params) == set(grid)
    # Of independent series of some 1250 days a correlation above 0.5 does not occur.
    assert np.corrcoef(volatility)[0, 1] > 0.5
    assert np.all((check.transforms >= 0) & (check.transforms <= 1))
    assert (tmp_path / "sp500.png").stat().st_size > 5000


@pytest.mark.slow
def test_mean_reversion_is_not_seen_in_the_rate(tmp_path):
    """The gain over a random walk is that of its noise; predictions of CIR are rejected."""
    pytest.importorskip("statsmodels")
    _, scores, check, fan = example("short_rate_forecast").main(tmp_path / "rate.png")
    plain, fair = scores["constant"], scores["square root"]
    assert plain.difference > 3 * plain.stderr
    assert fair.difference < 3 * fair.stderr
    assert check.tests()["variance"].p[0] < 0.01
    assert fan.variances[-1, 0] > fan.variances[0, 0]
    assert (tmp_path / "rate_check.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_oscillator_is_compared_with_red_noise(tmp_path):
    pytest.importorskip("statsmodels")
    checks, better, found, fan = example("el_nino").main(tmp_path / "el_nino.png")
    assert better.count == len(checks["oscillator"].times) == 251  # months after January 1990
    # The hidden component is known less well than the one that is seen.
    assert np.all(np.mean(found.variances, axis=0)[1] > np.mean(found.variances, axis=0)[0])
    assert fan.means.shape == (36, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["langevin_velocity", "heston_variance"])
def test_a_component_that_is_never_seen(name):
    module = example(name)
    tree, inside = module.main()
    # Errors at successive times are alike; a dozen independent ones, five standard deviations.
    assert inside[1] > 0.9 - 5 * np.sqrt(0.9 * 0.1 / 12)
    for parameter, value in module.TRUE.items():
        draws = tree.posterior[parameter]
        assert abs(float(draws.mean()) - value) < 5 * float(draws.std())
