"""Noise that enters some components only."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.equation.moving_frame import ratio_equation
from diracflow.source.moments import graded_basis

LINEAR = df.models.linear_langevin(stiffness=1.5, friction=0.8, noise=0.7)
TURN = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
# Langevin's oscillator seen from axes that are neither position nor velocity.
TURNED = df.SDE(
    lambda t, x: TURN @ LINEAR.sde.drift(t, TURN.T @ x),
    lambda t, x: TURN @ LINEAR.sde.diffusion(t, TURN.T @ x),
    2,
)
CHAIN = df.SDE(
    lambda t, x: jnp.stack([x[1], x[2], -x[0] - x[2]]),
    lambda t, x: jnp.array([[0.0], [0.0], [1.0]]),
    3,
)
# What noise acts on passes through a curved function.
CURVED = df.SDE(
    lambda t, x: jnp.stack([x[1] + 0.5 * jnp.sin(x[1]), jnp.cos(x[0]) - x[1]]),
    lambda t, x: jnp.stack([jnp.zeros(1), (1 + 0.3 * jnp.sin(x))[:1]]),
    2,
)


def covariance_series(slope, noise, tau, terms=30):
    """The covariance of a linear SDE, from its double series."""
    powers = [np.linalg.matrix_power(slope, j) / math.factorial(j) for j in range(terms)]
    pairs = ((j, k) for j in range(terms) for k in range(terms))
    return sum(powers[j] @ noise @ powers[k].T * tau ** (j + k + 1) / (j + k + 1) for j, k in pairs)


@pytest.mark.parametrize("sde", [LINEAR.sde, CHAIN], ids=["langevin", "chain"])
def test_the_linearised_covariance_is_exact_entry_by_entry(sde):
    dim, taus = sde.dim, [1e-8, 1e-4, 0.1, 1.0]
    slope = np.asarray(jax.jacfwd(lambda x: sde.drift(0.0, x))(jnp.zeros(dim)))
    noise = np.asarray(sde.covariance(jnp.array(0.0), jnp.zeros(dim)))
    frame = jax.jit(lambda tau: df.MomentSource(sde).frame(tau, jnp.ones(dim)))
    for tau in taus:
        factor = np.asarray(frame(jnp.array(tau)).factor)
        exact = covariance_series(slope, noise, tau)
        # Leading terms agree in sign, so entries are right to rounding, also those of order tau^5.
        np.testing.assert_allclose(factor @ factor.T, exact, rtol=1e-11)
        if dim == 2 and tau < 1e-3:
            scaled = np.diag([tau**-1.5, tau**-0.5]) @ factor
            limit = 0.7**2 * np.array([[1 / 3, 1 / 2], [1 / 2, 1]])
            np.testing.assert_allclose(scaled @ scaled.T, limit, rtol=10 * tau)


@eqx.filter_jit
def forcing(source, clock, y, x0):
    """What an identity flow leaves over at one point, per unit of clock."""
    frame, rate = jax.jvp(lambda c: source.frame(c**2, x0), (clock,), (jnp.ones(()),))
    return ratio_equation(source.sde, clock**2, clock, frame, rate, y).source


def forcings(source, clocks, getkey):
    """At 256 random points, of shape (clocks, points)."""
    y, x0 = jr.normal(getkey(), (2, 256, source.sde.dim))
    at_points = jax.vmap(lambda clock, y, x0: forcing(source, clock, y, x0), (None, 0, 0))
    return np.asarray(jax.vmap(at_points, (0, None, None))(jnp.array(clocks), y, x0))


def test_the_forcing_of_linear_equations_vanishes_at_all_clocks(getkey):
    clocks = np.array([1e-4, 1e-3, 1e-2, 0.1, 1.0, 1.4])
    found = np.abs(forcings(df.MomentSource(LINEAR.sde), clocks, getkey)).max(axis=1)
    # Velocities of order one are known to 1e-16, and count against the position's width, c^3, times
    # c: rounding of 1e-16 / c^2, some hundred times, and that of all steps. Integrated from 1e-4 on
    # that is 1e-9.
    assert np.all(found < 1e-13 / clocks**2 + 1e-12)


def test_a_basis_keeps_the_digits_where_axes_are_mixed(getkey):
    clocks, basis = np.array([1e-3, 1e-2, 0.1]), graded_basis(TURNED, 0.0, np.zeros(2))
    found = np.abs(forcings(df.MomentSource(TURNED, 0.0, basis), clocks, getkey)).max(axis=1)
    # Relative errors of the factor are 1e-16 / c^2, and its rate is of order 1 / c.
    assert np.all(found < 1e-13 / clocks**3)


def test_no_basis_is_needed_along_the_axes():
    assert graded_basis(LINEAR.sde, 0.0, np.zeros(2)) is None
    assert graded_basis(CHAIN, 0.0, np.zeros(3)) is None
    full = df.models.ornstein_uhlenbeck(2, noise=[[1.0, 0.3], [0.2, 1.0]])
    assert graded_basis(full.sde, 0.0, np.zeros(2)) is None


@pytest.mark.slow
@pytest.mark.parametrize("sde", [df.models.langevin().sde, CURVED], ids=["well", "curved"])
def test_the_forcing_of_nonlinear_equations_stays_bounded(sde, getkey):
    found = forcings(df.MomentSource(sde), [1e-3, 1e-2, 1e-1], getkey)
    sizes = np.sqrt(np.mean(found**2, axis=1))
    # In a well the force varies by c^6 over the position's width. A curved coupling leaves a
    # quadratic term of order c, whose rate is constant.
    assert np.all(sizes < (1e-4 if sde is not CURVED else 3.0))
