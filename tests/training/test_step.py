import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diracflow.galerkin.velocity import NormalEquations
from diracflow.training.explicit_loop import bogacki_shampine, fisher_norm
from diracflow.training.implicit_loop import solve_stages
from diracflow.training.loop import Budget


class FakeVelocity(eqx.Module):
    theta_dot: np.ndarray
    normal: NormalEquations


def field(theta, clock):
    """A nonlinear, time-dependent test equation."""
    theta_dot = np.array([theta[1], -np.sin(theta[0]) + clock])
    return FakeVelocity(theta_dot, NormalEquations(jnp.eye(2), jnp.zeros(2)))


def solve(steps):
    theta, length, worst = np.array([1.0, 0.0]), 1.0 / steps, 0.0
    for k in range(steps):
        step = bogacki_shampine(field, theta, k * length, length, field(theta, k * length))
        theta, worst = step.theta, max(worst, step.error)
    return theta, worst


def test_third_order_with_a_second_order_estimate():
    steps = np.array([8, 16, 32, 64])
    reference, _ = solve(512)  # whose error is 1 / 512 of the smallest below
    errors, estimates = [], []
    for n in steps:
        theta, worst = solve(n)
        errors.append(np.linalg.norm(theta - reference))
        estimates.append(worst)
    order = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    local = -np.polyfit(np.log(steps), np.log(estimates), 1)[0]
    # Observed orders drift by a few per cent over this range of steps.
    assert abs(order - 3) < 0.15
    assert abs(local - 3) < 0.15  # one step of a second-order formula


class FakeIterate(eqx.Module):
    theta: np.ndarray
    log_ratio: np.ndarray
    forcing: np.ndarray
    size: float


def implicit(steps, rate=1e3, q=1.0):
    """Implicit steps for relaxation to the cosine; the parameter is the log-density itself."""

    def forcing(q, clock):
        return -rate * (q - np.cos(clock)) - np.sin(clock)

    def iterate(theta, clock, weight, target, guess):
        misfit = target - theta + weight * forcing(theta, clock)
        new = theta + misfit / (1 + weight * rate)
        return FakeIterate(new, new, forcing(new, clock), float(np.abs(new - theta).max()))

    theta, length, halfway = np.array([q]), 1.0 / steps, 0.0
    for k in range(steps):
        clock = k * length
        start = (theta, theta, forcing(theta, clock))
        stages = solve_stages(iterate, start, clock, length, np.zeros(1), 1e-14)
        middle = stages.halfway(theta, length)
        halfway = max(halfway, float(abs(middle - np.cos(clock + length / 2))[0]))
        theta = stages.thetas[-1]
    return float(abs(theta - np.cos(1.0))[0]), halfway


def test_implicit_steps_pass_where_explicit_ones_cannot():
    # The rate times the length is 50 to 250; an explicit step is stable up to 2.5.
    errors, halfway = zip(*(implicit(n) for n in (4, 8, 16)), strict=True)
    assert errors[0] < 1e-4
    # Stage order two: where the equation is stiff the error falls at least with the second power.
    assert errors[0] > 3.5 * errors[1] > 12 * errors[2]
    # Dense output at the midpoint is accurate, too.
    assert halfway[2] < 1e-4


def test_implicit_steps_forget_a_wrong_start():
    # L-stable: fast modes vanish after a few long steps.
    assert implicit(8, q=2.0)[0] < 1e-3


def test_implicit_steps_are_of_third_order_where_nothing_is_stiff():
    steps = np.array([8, 16, 32])
    errors = [implicit(n, rate=1.0)[0] for n in steps]
    assert abs(-np.polyfit(np.log(steps), np.log(errors), 1)[0] - 3) < 0.2


def test_stages_that_diverge_give_none():
    def growing(theta, clock, weight, target, guess):
        return FakeIterate(theta + 1, theta, theta, 3.0 ** float(theta[0]))

    def stuck(theta, clock, weight, target, guess):
        return FakeIterate(theta, theta, theta, 1.0)

    start = (np.zeros(1), np.zeros(1), np.zeros(1))
    for iterate in (growing, stuck):
        assert solve_stages(iterate, start, 0.1, 0.1, np.zeros(1), 1e-6) is None


def test_fisher_norm_does_not_depend_on_the_parametrisation():
    rng = np.random.default_rng(0)
    jacobian, change, mixing = (jnp.asarray(rng.normal(size=s)) for s in ((50, 4), (4,), (4, 4)))
    gram = jacobian.T @ jacobian / 50
    nats = fisher_norm(change, gram)
    np.testing.assert_allclose(nats, np.sqrt(np.mean((jacobian @ change) ** 2)), rtol=1e-12)
    # New parameters phi = mixing^-1 theta.
    other = fisher_norm(jnp.linalg.solve(mixing, change), mixing.T @ gram @ mixing)
    np.testing.assert_allclose(other, nats, rtol=1e-9)


def test_allowed_errors_add_up_to_the_budget():
    budget, steps = Budget(0.01, 0.0), np.full(7, 1 / 7)
    np.testing.assert_allclose(sum(map(budget.allowed_error, steps)), 0.01)
    np.testing.assert_allclose(Budget(0.01, 0.5).allowed_error(0.0), 0.005)
    assert Budget(0.01, np.inf).allowed_error(0.1) == 0.01


@pytest.mark.parametrize("allowance", [1e-9, 1e-2, 10.0, np.inf])
def test_next_length_meets_the_allowed_error(allowance):
    # For an error of third order, four times the allowed one, the next length is 0.8 of the one
    # that meets it, up to the change of the exponent.
    budget, length = Budget(1e-3, allowance), 0.1
    error = 4 * budget.allowed_error(length)
    shorter = budget.next_length(length, error)
    ratio = error * (shorter / length) ** 3 / budget.allowed_error(shorter)
    assert 0.8**3 * 0.9 < ratio <= 1.0


def test_step_length_is_safeguarded():
    budget = Budget(1e-3, 1e-3)
    np.testing.assert_allclose(budget.next_length(0.1, 0.0), 0.2)
    np.testing.assert_allclose(budget.next_length(0.1, 1e6), 0.02)
