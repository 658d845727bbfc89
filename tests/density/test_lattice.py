"""Times whose legs meet in the points of a lattice.

Most tests take linear equations, whose source is exact and whose flow rests: then a density over
legs differs from the exact one by the sum over the lattice alone.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density import lattice as lattice_module
from diracflow.density.lattice import Lattice, _around, _lost, powers
from diracflow.planning.subinterval_rule import composes_on_lattice
from file_mutations import signed, unpacked
from helpers import problem_of, require_derivatives, still_density

LINE = dataclasses.replace(
    df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6), horizon=6.0
)
PLANE = dataclasses.replace(
    df.models.ornstein_uhlenbeck(2, rate=[0.5, 0.9], level=0.1, noise=0.6), horizon=4.0
)
X0 = jnp.array([1.2])
GRID = np.linspace(-4.0, 4.0, 801)[:, None]


@pytest.fixture(scope="module")
def line():
    """Five legs of 1.2 each."""
    return still_density(LINE, legs=5, lattice=True)


@pytest.fixture(scope="module")
def plane():
    return still_density(PLANE, legs=4, lattice=True)


def total_variation(density, exact, t, x0):
    p, q = (np.asarray(law.prob(GRID, t, x0)) for law in (density, exact))
    return 0.5 * np.sum(np.abs(p - q)) * (GRID[1, 0] - GRID[0, 0])


@pytest.mark.parametrize("t", [1.3, 2.4, 3.0, 4.7, 6.0])  # two to five legs
def test_on_a_line_sums_are_nearly_exact(line, t):
    # Spacings of 1.25 standard deviations, 7e-6. Just above one leg the integrand, a product of two
    # densities after half of it, is narrower than either: 0.7 standard deviations, 4e-3 at worst
    # and in the mean over points a tenth of that.
    assert total_variation(line, LINE.exact, t, X0) < (4e-4 if t < 2 else 1e-5)


@pytest.mark.parametrize("t", [1.1, pytest.param(2.7, marks=pytest.mark.slow), 4.0])
def test_in_the_plane_sums_are_nearly_exact(plane, t, getkey):
    x0 = jnp.array([1.0, -0.6])
    x = PLANE.exact.sample(getkey(), t, x0, (256,))
    ratios = np.exp(plane.log_prob(x, t, x0) - PLANE.exact.log_prob(x, t, x0))
    # Half the mean distance from one is the total variation. Points around a thousand paths hold
    # all but some ten thousandths of the mass.
    assert 0.5 * np.mean(np.abs(ratios - 1)) < 1e-3


@pytest.mark.slow
def test_sums_converge_faster_than_any_power(monkeypatch):
    errors = []
    for spacing in (1.0, 1.4):
        monkeypatch.setattr(lattice_module, "_SPACING", spacing)
        density = still_density(LINE, legs=2, lattice=True)
        # A hair more than a leg: both halves are as short as they get.
        errors.append(total_variation(density, LINE.exact, 3.0001, X0))
    # The exponent is about 17 over the square of the spacing: a factor of 3000, where one of the
    # spacing's tenth power would be 29.
    assert errors[0] < errors[1] / 300


def test_mass_is_one_whatever_the_lattice(line):
    moves = np.random.default_rng(0).dirichlet(np.ones(5), size=5)
    lattice = Lattice(line.lattice.points[:5], powers(moves, line.legs))
    density = df.ComposedDensity(line.base, line.horizon, lattice=lattice)
    mass = np.sum(np.asarray(density.prob(GRID, 5.5, X0))) * (GRID[1, 0] - GRID[0, 0])
    assert mass == pytest.approx(1.0, abs=1e-8)


def test_powers_reach_every_number_of_legs():
    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.ones(6), size=6)
    for legs in (2, 3, 4, 5, 9, 10):
        found, weights = powers(moves, legs), np.eye(6)[0]
        for bit, power in enumerate(found):
            if ((legs - 2) >> bit) & 1:
                weights = weights @ power
        expected = np.eye(6)[0] @ np.linalg.matrix_power(moves, legs - 2)
        np.testing.assert_allclose(weights, expected, atol=1e-14)


@pytest.mark.slow
def test_derivatives_are_those_of_the_values(line):
    require_derivatives(line, jnp.array([0.6]), jnp.array(4.1), X0)


def test_traced_times_find_their_legs(line):
    x, t = jnp.array([0.4]), jnp.array([0.7, 2.0, 5.0])
    known = [line.log_prob(x, s, X0) for s in t]
    np.testing.assert_allclose(jax.jit(line.log_prob)(x, t, X0), known, rtol=1e-12)


def test_rare_starts_are_on_the_lattice(plane):
    # Nearly as far out as is answered without a warning, between directions that were looked at.
    turns = np.array([0.03, 1.1, 2.2, 3.9, 5.1])
    x0 = 4.1 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    assert not np.any(plane.outside(x0))
    for start in x0:
        x = PLANE.exact.sample(jr.key(0), 1.2, start, (64,))
        ratios = np.exp(plane.log_prob(x, 1.2, start) - PLANE.exact.log_prob(x, 1.2, start))
        assert 0.5 * np.mean(np.abs(ratios - 1)) < 0.02


def test_far_from_all_paths_values_stay_finite(line):
    x = jnp.array([[-30.0], [30.0]])
    assert np.all(np.isfinite(line.log_prob(x, 5.0, X0)))
    assert np.all(np.isfinite(line.score(x, 5.0, X0)))


def test_single_precision_loses_rounding_only(line):
    x = GRID[::50]
    with jax.enable_x64(False):
        single = np.asarray(line.log_prob(x, 5.0, X0))
    assert single.dtype == np.float32
    # Exponents of up to a hundred at 6e-8, in sums of some dozen terms.
    np.testing.assert_allclose(single, line.log_prob(x, 5.0, X0), atol=1e-4, rtol=1e-4)


def test_the_bound_holds_over_a_lattice(line, getkey):
    found = line.certificate(getkey(), 6.0, X0, samples=16)
    distance = total_variation(line, LINE.exact, 6.0, X0)
    assert distance <= found.bound + 5 * found.stderr + 1e-12
    assert found.bound < 0.02


def test_lattices_are_for_the_plane_and_single_equations():
    solid, family = df.models.ornstein_uhlenbeck(3), df.models.cir_family()
    assert composes_on_lattice(problem_of(PLANE))
    assert not composes_on_lattice(problem_of(solid))
    assert not composes_on_lattice(problem_of(family))


def test_points_surround_paths_and_are_not_too_many():
    visited = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    points, spacing = _around(visited, np.array([0.2, 0.1]))
    np.testing.assert_array_equal(spacing, [0.2, 0.1])
    steps = np.max(np.abs(visited[:, None] - points) / spacing, axis=-1)
    assert np.all(np.sum(steps <= 0.5 + 1e-9, axis=1) == 1)  # each path is in one cell
    # Too fine by little: coarser. By much: none.
    points, spacing = _around(visited, np.array([0.05, 0.05]))
    assert len(points) <= 1536
    assert 0.05 < spacing[0] == spacing[1] < 0.05 * 1.2
    assert _around(visited, np.array([0.03, 0.03])) is None


def test_mass_is_looked_at_over_all_legs():
    moves, masses = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1.0, 0.9])
    first = np.array([[0.98, 0.0], [1.0, 0.0]])
    lost = [_lost(first, moves, masses, legs) for legs in (2, 3, 4, 6)]
    # A hundredth in the first leg; then a tenth whenever all mass is at the second point.
    np.testing.assert_allclose(lost, [0.01, 0.01, 0.11, 0.21])


def test_lattices_that_lose_mass_are_not_used(line, monkeypatch):
    monkeypatch.setattr(lattice_module, "_LOST", 0.0)
    simulated = still_density(LINE, legs=5, lattice=True)
    assert simulated.lattice is None
    # Points are simulated instead, which gives the same density up to quadrature.
    values = simulated.log_prob(GRID[400:600:40], 2.0, X0)
    np.testing.assert_allclose(values, line.log_prob(GRID[400:600:40], 2.0, X0), atol=0.05)


def test_files_keep_lattices(line, tmp_path):
    line.save(tmp_path / "model.dflow")
    again = df.load(tmp_path / "model.dflow")
    values = line.log_prob(GRID[::100], 5.4, X0)
    np.testing.assert_array_equal(again.log_prob(GRID[::100], 5.4, X0), values)
    assert eqx.tree_equal(again.lattice, line.lattice)


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("points", lambda a: a[1:], "points of shape"),
        ("moves", lambda a: 2 * a, "must be probabilities"),
        ("moves", lambda a: a * np.nan, "must be probabilities"),
        ("points", lambda a: np.full_like(a, np.inf), "must be finite"),
        ("points", lambda a: a[:, :0], "its lattice must have"),
    ],
)
def test_wrong_lattices_are_refused(line, tmp_path, name, change, message):
    path = tmp_path / "model.dflow"
    line.save(path)
    header, arrays = unpacked(path.read_bytes())
    name = f"density.lattice.{name}"
    path.write_bytes(signed(header, arrays | {name: change(arrays[name])}))
    with pytest.raises(df.ModelFileError, match=message):
        df.load(path)


@pytest.mark.parametrize("legs", [0, 10**6])
def test_numbers_of_subintervals_are_bounded(line, tmp_path, legs):
    path = tmp_path / "model.dflow"
    line.save(path)
    header, arrays = unpacked(path.read_bytes())
    header["density"]["fields"]["legs"] = legs
    path.write_bytes(signed(header, arrays))
    with pytest.raises(df.ModelFileError, match="with 1 to 16 subintervals"):
        df.load(path)


def test_densities_of_one_leg_have_no_lattice(line, tmp_path):
    path = tmp_path / "model.dflow"
    still_density(LINE).save(path)
    header, arrays = unpacked(path.read_bytes())
    path.write_bytes(signed(header, arrays | {"density.lattice.points": np.zeros((1, 1))}))
    with pytest.raises(df.ModelFileError, match="unknown array 'density.lattice.points'"):
        df.load(path)
