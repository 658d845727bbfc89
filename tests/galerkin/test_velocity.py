import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.assembly import Rows, assemble, forcing
from diracflow.galerkin.collocation import CUBES, draw
from diracflow.galerkin.solve import relative_residual, solve
from diracflow.galerkin.velocity import velocity
from diracflow.training.build import build_ansatz
from diracflow.training.settings import Settings

SETTINGS = Settings(layers=4, hidden=3)


def start_of(model, start_time=0.0):
    return build_ansatz(model.sde, start_time, SETTINGS, jr.key(5))


def moved(ansatz, key):
    return ansatz.at(ansatz.theta + 0.2 * jr.normal(key, ansatz.theta.shape))


@pytest.mark.parametrize("tau", [1e-6, 1e-2, 1.0])
def test_forcing_vanishes_for_brownian_motion(tau, getkey):
    # The source is exact. Terms of size 1/tau cancel, each with a relative error of 1e-16, and
    # distances of sqrt(tau) are differences of numbers of order one.
    ansatz = start_of(df.models.brownian(3))
    x0, noise = jr.normal(getkey(), (2, 3))
    x = ansatz.from_noise(noise, jnp.array(tau), x0)
    f = forcing(ansatz, x, jnp.array(tau), x0)
    assert abs(f) < 1e-13 * (1 + tau**-1.5)


def test_forcing_is_the_defect_of_the_density(getkey):
    # An OU source is not exact: compare with the rate of the exact density's own equation.
    model = df.models.ornstein_uhlenbeck(2)
    ansatz = moved(start_of(model), getkey())
    x, x0 = jr.normal(getkey(), (2, 2))
    tau, step = jnp.array(0.4), 1e-5
    ends = [ansatz.log_prob(x, tau + s, x0) for s in (step, -step)]
    rate = df.log_density_rate(model.sde, lambda y: ansatz.log_prob(y, tau, x0), tau, x)
    expected = rate - (ends[0] - ends[1]) / (2 * step)
    # Central differences with step 1e-5: error of order 1e-10 times a third derivative.
    np.testing.assert_allclose(forcing(ansatz, x, tau, x0), expected, rtol=1e-6, atol=1e-7)


def test_jacobian_and_forcing_have_mean_zero_under_the_density(getkey):
    # E[grad_theta log P] = 0 and E[f] = 0 because mass is conserved; before centring.
    from diracflow.galerkin.assembly import row

    model = df.models.benes()
    ansatz, n = moved(start_of(model), getkey()), 4096
    draws = draw(CUBES["montecarlo"], getkey(), model.starts, 2, n)
    jacobian, f = jax.vmap(lambda x0, e: row(ansatz, ansatz.theta, jnp.array(0.5), x0, e))(
        draws.x0, draws.noise
    )
    for values in (jacobian, f[:, None]):
        standard_error = values.std(axis=0) / np.sqrt(n)
        # Hundreds of means at six standard errors each.
        assert np.all(np.abs(values.mean(axis=0)) < 6 * standard_error + 1e-12)


def test_start_time_shifts_the_coefficients(getkey):
    # Seen from s, the SDE with coefficients b(t, x) is the one with b(s + t, x) seen from 0.
    late = df.SDE(lambda t, x: jnp.sin(t) * x, lambda t, x: (1 + t) * jnp.eye(2), 2)
    shifted = df.SDE(lambda t, x: jnp.sin(t + 2) * x, lambda t, x: (3 + t) * jnp.eye(2), 2)
    x, x0 = jr.normal(getkey(), (2, 2))
    values = [
        forcing(build_ansatz(sde, s, SETTINGS, jr.key(5)), x, jnp.array(0.3), x0)
        for sde, s in ((late, 2.0), (shifted, 0.0))
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


def random_rows(key, n, m, rank):
    left, right = jr.normal(key, (n, rank)), jr.normal(jr.fold_in(key, 1), (rank, m))
    return Rows(left @ right, jr.normal(jr.fold_in(key, 2), (n,)))


def test_solution_is_least_squares_where_it_is_determined(getkey):
    rows = random_rows(getkey(), 200, 20, 20)
    found = solve(rows, jnp.array(1e-14)).theta_dot
    expected = np.linalg.lstsq(rows.jacobian, rows.forcing, rcond=None)[0]
    # Normal equations in float64 with a condition number near 1e3.
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_rank_deficient_problems_are_solved(getkey):
    rows = random_rows(getkey(), 200, 30, 7)
    solution = solve(rows, jnp.array(1e-10))
    best = np.linalg.lstsq(rows.jacobian, rows.forcing, rcond=1e-8)[0]
    np.testing.assert_allclose(
        rows.jacobian @ solution.theta_dot, rows.jacobian @ best, rtol=1e-5, atol=1e-6
    )
    # Sixteen random signs leave a standard error below sqrt(7 / 8).
    assert abs(solution.rank - 7) < 3


def test_residual_is_one_for_no_velocity(getkey):
    rows = random_rows(getkey(), 50, 5, 5)
    np.testing.assert_allclose(relative_residual(rows, jnp.zeros(5)), 1.0)


def test_nothing_is_left_to_explain_where_the_source_is_exact(getkey):
    model = df.models.brownian(2)
    ansatz = start_of(model)
    draws = draw(CUBES["sobol"], getkey(), model.starts, 2, 128)
    still = jnp.zeros_like(ansatz.theta)
    found = velocity(ansatz, ansatz.theta, jnp.array(0.5), draws, jnp.array(1e-8), still)
    assert found.forcing < 1e-12
    assert found.residual == found.fresh_residual == 0


def test_in_sample_residual_flatters(getkey):
    # With as many parameters as points the fit is perfect on its own points only.
    model = df.models.benes()
    ansatz = moved(start_of(model), getkey())
    tau_clock, regularisation = jnp.array(0.5), jnp.array(1e-12)
    mine, other = (draw(CUBES["sobol"], getkey(), model.starts, 2, 128) for _ in range(2))
    still = jnp.zeros_like(ansatz.theta)
    fitted = velocity(ansatz, ansatz.theta, tau_clock, mine, regularisation, still)
    judged = velocity(ansatz, ansatz.theta, tau_clock, other, regularisation, fitted.theta_dot)
    assert fitted.residual < 1e-3 < judged.fresh_residual
    np.testing.assert_allclose(fitted.fresh_residual, 1.0)


def test_velocity_is_traced_once(getkey):
    # Changing theta, time or draws must not compile again.
    model, traces = df.models.benes(), []

    def drift(t, x):
        traces.append(1)
        return -x

    sde = df.SDE(drift, lambda t, x: jnp.eye(2), 2)
    ansatz = build_ansatz(sde, 0.0, SETTINGS, getkey())
    still, regularisation = jnp.zeros_like(ansatz.theta), jnp.array(1e-8)
    counts = []
    for clock in (0.1, 0.2, 0.3):
        draws = draw(CUBES["sobol"], getkey(), model.starts, 2, 64)
        velocity(ansatz, ansatz.theta + clock, jnp.array(clock), draws, regularisation, still)
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2]


def test_assembly_is_deterministic(getkey):
    model = df.models.benes()
    ansatz = moved(start_of(model), getkey())
    draws = draw(CUBES["sobol"], getkey(), model.starts, 2, 64)
    run = eqx.filter_jit(assemble)
    first, second = (run(ansatz, ansatz.theta, jnp.array(0.2), draws) for _ in range(2))
    np.testing.assert_array_equal(first.jacobian, second.jacobian)
    np.testing.assert_array_equal(first.forcing, second.forcing)
