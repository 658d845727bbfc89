import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.collocation import Points, centred, draw, per_point, place
from diracflow.galerkin.implicit import factor, iterate, system, values_at
from diracflow.galerkin.rows import Rows, assemble, gram_matrix, linearise
from diracflow.galerkin.velocity import normal_equations, relative_residual, survey, velocity
from diracflow.sde.quasi_random import CUBES
from helpers import ansatz_for, problem_for

BOTH = pytest.mark.parametrize("preset", ["accurate", "paper"])


def start_of(model, preset="accurate", start_time=0.0, source="euler", context="start"):
    problem = problem_for(model.sde, model.starts, start_time=start_time)
    settings = {"layers": 4, "hidden": 3, "source": source, "context": context}
    return ansatz_for(problem, preset, jr.key(5), **settings)


def moved(ansatz, key):
    return ansatz.at(ansatz.theta + 0.2 * jr.normal(key, ansatz.theta.shape))


def points_of(ansatz, model, key, n, clock=0.5, cube="sobol"):
    draws = draw(CUBES[cube], key, model.starts, model.sde.dim, n, 1.0)
    return place(ansatz, ansatz.theta, jnp.array(clock), draws)


def velocity_of(ansatz, points, regularisation, candidate=None, clock=0.5):
    still = jnp.zeros_like(ansatz.theta)
    candidates = (still if candidate is None else candidate)[None]
    return velocity(
        *(ansatz, ansatz.theta, jnp.array(clock), points),
        *(jnp.array(regularisation), still, candidates),
    )


@eqx.filter_jit
def forcing_at(ansatz, noise, clock, x0):
    return ansatz.forcing(ansatz.place(noise, clock, x0), clock, x0)


@eqx.filter_jit
def defect(ansatz, noise, clock, x0):
    """Fokker-Planck rate minus time derivative of the log-density, by central differences."""
    tau, step = clock**2, 1e-5
    x = ansatz.from_noise(noise, tau, x0)
    ends = [ansatz.log_prob(x, tau + s, x0) for s in (step, -step)]
    rate = df.log_density_rate(ansatz.source.sde, lambda y: ansatz.log_prob(y, tau, x0), tau, x)
    return 2 * clock * (rate - (ends[0] - ends[1]) / (2 * step))


@BOTH
@pytest.mark.parametrize("clock", [1e-3, 1e-1, 1.0])
def test_forcing_vanishes_for_brownian_motion(preset, clock, getkey):
    # The source is exact. In raw coordinates terms of size 1/tau cancel, and distances of
    # sqrt(tau) are differences of numbers of order one. In standardised ones nothing does; only
    # K and S, of size 1/clock, are rounded.
    ansatz = start_of(df.models.brownian(3), preset)
    x0, noise = jr.normal(getkey(), (2, 3))
    f = forcing_at(ansatz, noise, jnp.array(clock), x0)
    assert abs(f) < (1e-14 / clock if preset == "accurate" else 1e-13 * (1 + clock**-2))


@pytest.mark.parametrize(
    "preset, context",
    [
        pytest.param("accurate", "start", marks=pytest.mark.slow),
        ("accurate", "path"),
        pytest.param("paper", "start", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(df.models.ornstein_uhlenbeck(2), marks=pytest.mark.slow),
        df.models.sheared(4),  # whose noise depends on the state
    ],
)
def test_forcing_is_the_defect_of_the_density(preset, context, model, getkey):
    # Neither source is exact. The defect of log P in the state and in time, whatever the
    # coordinates of the flow, and whether or not it moves with the source.
    ansatz, dim = moved(start_of(model, preset, context=context), getkey()), model.sde.dim
    noise, x0 = jr.normal(getkey(), (2, dim))
    point = (ansatz, noise, jnp.array(0.6), x0)
    # Central differences with step 1e-5: error of order 1e-10 times a third derivative.
    np.testing.assert_allclose(forcing_at(*point), defect(*point), rtol=1e-6, atol=1e-6)


@BOTH
def test_jacobian_and_forcing_have_mean_zero_under_the_density(preset, getkey):
    # E[grad_theta log P] = 0 and E[f] = 0 because mass is conserved; before centring.
    model, n = df.models.benes(), 4096
    ansatz = moved(start_of(model, preset), getkey())
    points = points_of(ansatz, model, getkey(), n, cube="montecarlo")
    for function in (ansatz.parameter_score, ansatz.forcing):
        values = eqx.filter_jit(per_point)(function, jnp.array(0.5), points).reshape(n, -1)
        standard_error = values.std(axis=0) / np.sqrt(n)
        # Hundreds of means at six standard errors each.
        assert np.all(np.abs(values.mean(axis=0)) < 6 * standard_error + 1e-12)


@pytest.mark.parametrize("preset", [pytest.param("accurate", marks=pytest.mark.slow), "paper"])
def test_start_time_shifts_the_coefficients(preset, getkey):
    # Seen from s, the SDE with coefficients b(t, x) is the one with b(s + t, x) seen from 0.
    late = df.SDE(lambda t, x: jnp.sin(t) * x, lambda t, x: (1 + t) * jnp.eye(2), 2)
    shifted = df.SDE(lambda t, x: jnp.sin(t + 2) * x, lambda t, x: (3 + t) * jnp.eye(2), 2)
    y, x0 = jr.normal(getkey(), (2, 2))
    problems = [
        problem_for(sde, df.Normal(0.0, 1.0), start_time=s)
        for sde, s in ((late, 2.0), (shifted, 0.0))
    ]
    values = [
        forcing_at(ansatz_for(problem, preset, jr.key(5)), y, jnp.array(0.5), x0)
        for problem in problems
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


# Networks that follow paths are given the start as well, so that "path" includes the other.
@pytest.mark.parametrize("context", [pytest.param("start", marks=pytest.mark.slow), "path"])
def test_linearisation_agrees_with_derivatives(context, getkey):
    model = df.models.sheared(2)  # noise that depends on the state, so that every term counts
    ansatz = moved(start_of(model, context=context), getkey())
    y, x0, clock = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,)), jnp.array(0.5)

    # Along random directions, which are quicker to compile than a gradient and miss no entry.
    directions = jr.normal(getkey(), (3, len(ansatz.theta)))

    @eqx.filter_jit
    def expected(theta):
        rate = lambda theta: ansatz.at(theta).log_ratio_and_rate(y, clock, x0)[1]
        along = jax.vmap(lambda v: jax.jvp(rate, (theta,), (v,))[1])(directions)
        return ansatz.forcing(y, clock, x0), along

    forcing, score, rate_gradient = eqx.filter_jit(ansatz.linearised)(y, clock, x0)
    value, derivative = expected(ansatz.theta)
    np.testing.assert_allclose(forcing, value, rtol=1e-10)
    np.testing.assert_allclose(directions @ rate_gradient, derivative, rtol=1e-8, atol=1e-9)
    direct = eqx.filter_jit(ansatz.parameter_score)(y, clock, x0)
    np.testing.assert_allclose(score, direct, rtol=1e-10, atol=1e-12)


def test_weights_stand_for_repeated_points(getkey):
    # Two rows of weight 3/2 and 1/2 are a row three times and another once.
    jacobian, forcing = jr.normal(getkey(), (2, 3)), jr.normal(getkey(), (2,))
    points = Points(jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.array([1.5, 0.5]))
    weighted = normal_equations(Rows(*centred((jacobian, forcing), points)))
    often = jnp.array([0, 0, 0, 1])
    points = Points(jnp.zeros((4, 1)), jnp.zeros((4, 1)), jnp.ones(4))
    repeated = normal_equations(Rows(*centred((jacobian[often], forcing[often]), points)))
    np.testing.assert_allclose(weighted.gram, repeated.gram, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weighted.moment, repeated.moment, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_the_rate_is_the_forcing_and_what_follows_the_path(getkey):
    # In own coordinates, with parameters at rest, the log-ratio of a flow that follows the source
    # moves in time; one that is given the start alone does not.
    for context, moves in (("start", False), ("path", True)):
        ansatz = moved(start_of(df.models.ornstein_uhlenbeck(2), context=context), getkey())
        y, x0, clock = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,)), jnp.array(0.5)
        log_ratio = eqx.filter_jit(lambda c, a=ansatz, y=y, x0=x0: a.log_density(y, c, x0))
        step = 1e-5
        expected = (log_ratio(clock + step) - log_ratio(clock - step)) / (2 * step)
        value, rate = eqx.filter_jit(ansatz.log_ratio_and_rate)(y, clock, x0)
        _, forcing = eqx.filter_jit(ansatz.log_ratio_and_forcing)(y, clock, x0)
        np.testing.assert_allclose(value, log_ratio(clock), rtol=1e-12)
        np.testing.assert_allclose(rate - forcing, expected, rtol=1e-6, atol=1e-9)
        assert (abs(expected) > 1e-3) == moves


@pytest.mark.slow
def test_implicit_start_solves_the_equation_of_first_order(getkey):
    # For dX = -a X dt + dW the density in standardised coordinates is, to first order in the clock
    # squared, N(0, I) with a linear change of variables: the start must leave hardly any residual,
    # and agree with the velocity found at its end.
    model = df.models.ornstein_uhlenbeck(2)
    ansatz, clock = start_of(model), jnp.array(0.02)
    points = points_of(ansatz, model, getkey(), 1024, clock)
    left = system(linearise(ansatz, ansatz.theta, clock, points), clock)
    theta_dot = factor(left.normal, jnp.array(1e-8)).solve(left.normal.moment)
    assert relative_residual(left.rows, theta_dot) < 1e-6
    end = ansatz.at(ansatz.theta + clock * theta_dot)
    later = velocity_of(end, points, 1e-8, theta_dot, clock)
    assert later.held_out_residuals[0] < 1e-4


@pytest.mark.slow
def test_iterations_solve_a_stage(getkey):
    # The target is made from parameters nearby, so that a solution exists: iterations must find
    # its log-density although their linearisation is that of where they start.
    model, clock, weight = df.models.sheared(2), jnp.array(0.3), jnp.array(0.01)
    ansatz = start_of(model)
    ansatz = ansatz.at(ansatz.theta + 0.03 * jr.normal(getkey(), ansatz.theta.shape))
    points = points_of(ansatz, model, getkey(), 512, clock)
    there = ansatz.theta + 0.003 * jr.normal(getkey(), ansatz.theta.shape)
    log_density, forcing, _ = values_at(ansatz, there, clock, points)
    left = system(linearise(ansatz, ansatz.theta, clock, points), weight)
    equation = (left, factor(left.normal, jnp.array(1e-5)))
    theta, target, sizes = ansatz.theta, log_density - weight * forcing, []
    for _ in range(12):
        found = iterate(*(ansatz, theta, clock, points, equation), weight, target, theta)
        theta = found.theta
        sizes.append(float(found.size))
    assert sizes[-1] < 1e-2 * sizes[0]
    # Directions that regularisation holds back are left, a hundredth of what there was to do.
    left_over = np.sqrt(np.mean((found.log_ratio - log_density) ** 2))
    assert left_over < 1e-2 * sizes[0]


def test_gram_matrix_is_the_product(getkey):
    jacobian = jr.normal(getkey(), (50, 11))
    np.testing.assert_allclose(gram_matrix(jacobian), jacobian.T @ jacobian, rtol=1e-12)


def random_rows(key, n, m, rank):
    left, right = jr.normal(key, (n, rank)), jr.normal(jr.fold_in(key, 1), (rank, m))
    return Rows(left @ right, jr.normal(jr.fold_in(key, 2), (n,)))


def test_solution_is_least_squares_where_it_is_determined(getkey):
    rows = random_rows(getkey(), 200, 20, 20)
    found = normal_equations(rows).solve(jnp.array(1e-14), jnp.zeros(20))
    expected = np.linalg.lstsq(rows.jacobian, rows.forcing, rcond=None)[0]
    # Normal equations in float64 with a condition number near 1e3.
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_rank_deficient_problems_are_solved(getkey):
    rows = random_rows(getkey(), 200, 30, 7)
    normal, regularisation = normal_equations(rows), jnp.array(1e-10)
    theta_dot = normal.solve(regularisation, jnp.zeros(30))
    best = np.linalg.lstsq(rows.jacobian, rows.forcing, rcond=1e-8)[0]
    np.testing.assert_allclose(
        rows.jacobian @ theta_dot, rows.jacobian @ best, rtol=1e-5, atol=1e-6
    )
    same, rank, condition = normal.solve_and_rank(regularisation, jnp.zeros(30))
    np.testing.assert_allclose(rows.jacobian @ same, rows.jacobian @ theta_dot, atol=1e-6)
    # Sixteen random signs leave a standard error below sqrt(7 / 8).
    assert abs(rank - 7) < 3
    # Null directions are held by the regularisation alone, relative to the mean eigenvalue.
    assert 1e9 < condition < 1e12


def test_residual_is_one_for_no_velocity(getkey):
    rows = random_rows(getkey(), 50, 5, 5)
    np.testing.assert_allclose(relative_residual(rows, jnp.zeros(5)), 1.0)


def test_undetermined_directions_follow_the_prior(getkey):
    rows = random_rows(getkey(), 200, 30, 7)
    normal, prior = normal_equations(rows), jr.normal(getkey(), (30,))
    found = normal.solve(jnp.array(1e-10), prior)
    null = np.linalg.svd(rows.jacobian)[2][7:]
    np.testing.assert_allclose(null @ found, null @ prior, rtol=1e-4, atol=1e-4)
    free = normal.solve(jnp.array(1e-10), jnp.zeros(30))
    np.testing.assert_allclose(rows.jacobian @ found, rows.jacobian @ free, atol=1e-5)


def test_survey_solves_for_every_value(getkey):
    normal = normal_equations(random_rows(getkey(), 200, 20, 20))
    values, prior = jnp.array([1e-6, 1e-3, 1e-1]), jr.normal(getkey(), (20,))
    found = survey(normal, values, prior)
    for value, candidate in zip(values, found.candidates, strict=True):
        np.testing.assert_allclose(candidate, normal.solve(value, prior), rtol=1e-10)


@BOTH
def test_nothing_is_left_to_explain_where_the_source_is_exact(preset, getkey):
    model = df.models.brownian(2)
    ansatz = start_of(model, preset)
    found = velocity_of(ansatz, points_of(ansatz, model, getkey(), 128), 1e-8)
    assert found.forcing < 1e-12
    assert found.residual == found.held_out_residuals[0] == 0


def test_in_sample_residual_flatters(getkey):
    # With as many parameters as points the fit is perfect on its own points only.
    model = df.models.benes()
    ansatz = moved(start_of(model), getkey())
    mine, other = (points_of(ansatz, model, getkey(), 128) for _ in range(2))
    fitted = velocity_of(ansatz, mine, 1e-12)
    judged = velocity_of(ansatz, other, 1e-12, fitted.theta_dot)
    assert fitted.residual < 1e-3 < judged.held_out_residuals[0]
    np.testing.assert_allclose(fitted.held_out_residuals[0], 1.0)


@pytest.mark.slow
def test_velocity_is_traced_once(getkey):
    # Changing theta, time or points must not compile again.
    model, traces = df.models.benes(), []

    def drift(t, x):
        traces.append(1)
        return -x

    sde = df.SDE(drift, lambda t, x: jnp.eye(2), 2)
    ansatz = ansatz_for(problem_for(sde, model.starts), key=getkey())
    counts = []
    for clock in (0.1, 0.2, 0.3):
        here = ansatz.at(ansatz.theta + clock)
        velocity_of(here, points_of(here, model, getkey(), 64, clock), 1e-8, clock=clock)
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2]


def test_assembly_is_deterministic(getkey):
    model = df.models.benes()
    ansatz = moved(start_of(model), getkey())
    points = points_of(ansatz, model, getkey(), 64)
    first, second = (assemble(ansatz, ansatz.theta, jnp.array(0.2), points) for _ in range(2))
    np.testing.assert_array_equal(first[0].jacobian, second[0].jacobian)
    np.testing.assert_array_equal(first[0].forcing, second[0].forcing)
