import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diracflow.galerkin.solve import NormalEquations
from diracflow.training.step import Budget, bogacki_shampine, fisher_norm


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
    reference, _ = solve(2048)
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


def test_fisher_norm_does_not_depend_on_the_parametrisation():
    rng = np.random.default_rng(0)
    jacobian, change, mixing = (jnp.asarray(rng.normal(size=s)) for s in ((50, 4), (4,), (4, 4)))
    gram = jacobian.T @ jacobian / 50
    nats = fisher_norm(change, gram)
    np.testing.assert_allclose(nats, np.sqrt(np.mean((jacobian @ change) ** 2)), rtol=1e-12)
    # New parameters phi = mixing^-1 theta.
    other = fisher_norm(jnp.linalg.solve(mixing, change), mixing.T @ gram @ mixing)
    np.testing.assert_allclose(other, nats, rtol=1e-9)


def test_shares_of_the_budget_add_up_to_it():
    budget, steps = Budget(0.01, 0.0), np.full(7, 1 / 7)
    np.testing.assert_allclose(sum(map(budget.share, steps)), 0.01)
    np.testing.assert_allclose(Budget(0.01, 0.5).share(0.0), 0.005)
    assert Budget(0.01, np.inf).share(0.1) == 0.01


@pytest.mark.parametrize("allowance", [1e-9, 1e-2, 10.0, np.inf])
def test_next_length_meets_its_share(allowance):
    # An error of third order, four times its share: the next length is 0.8 of the one that fits,
    # up to the change of the exponent along the way.
    budget, length = Budget(1e-3, allowance), 0.1
    error = 4 * budget.share(length)
    shorter = budget.next_length(length, error)
    ratio = error * (shorter / length) ** 3 / budget.share(shorter)
    assert 0.8**3 * 0.9 < ratio <= 1.0


def test_step_length_is_safeguarded():
    budget = Budget(1e-3, 1e-3)
    np.testing.assert_allclose(budget.next_length(0.1, 0.0), 0.2)
    np.testing.assert_allclose(budget.next_length(0.1, 1e6), 0.02)
