r"""Particle marginal Metropolis--Hastings with correlated noise, in several chains at once.

A chain moves parameters by a random walk and the noise of its particle filter by
$u' = \rho u + \sqrt{1-\rho^2}\,\epsilon$, both at once. The estimate of the evidence is unbiased,
so the chain has the exact posterior as its law, whatever the number of particles. Correlation makes
the noise of two successive estimates cancel in their ratio. With $\rho=0$ the chain is plain
particle marginal Metropolis--Hastings (Andrieu, Doucet and Holenstein 2010).

During the warm-up, and only then, proposals learn their covariance from all chains. Every few moves
then keep the parameters, and $\rho$ is raised until such a move changes the logarithm of the
evidence by about one: small enough to be accepted, and no smaller, for the noise must mix as well.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..hidden.evidence import HiddenProcess, Noise, Run
from ..uses.extras import extra

# Random walks of few dimensions are most efficient near this acceptance rate; noise in the
# evidence lowers the best rate from 0.44 or 0.23 (Sherlock et al. 2015).
_ACCEPTANCE = 0.2
# Mean squared change of the log-evidence when the noise alone moves.
_CHANGE = 1.0
# Adaptation decays as the number of moves plus this offset to the power of minus the exponent.
_OFFSET, _EXPONENT = 10.0, 0.6
# Moves between two draws, so that draws are worth their memory.
_MOVES = 5
# Draws of the prior from which each chain starts at the likeliest.
_CANDIDATES = 10
# The noise is as good as constant at a smaller distance of the correlation from one.
_CLOSEST = 1e-4


class Tuning(eqx.Module):
    """The law of the moves of all chains, in unconstrained coordinates."""

    mean: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    log_scale: Float[Array, ""]
    log_decay: Float[Array, ""]  # of one minus the correlation of the noise

    def steps(self, normal: Float[Array, "chains k"]) -> Float[Array, "chains k"]:
        """Return one step for each chain."""
        factor = jnp.linalg.cholesky(self.covariance)
        return jnp.exp(self.log_scale) * normal @ factor.T

    def noise(self, old: Noise, new: Noise) -> Noise:
        """Return noise correlated with the old."""
        decay = jnp.exp(self.log_decay)
        other = jnp.sqrt(decay * (2 - decay))
        return jax.tree.map(lambda a, b: (1 - decay) * a + other * b, old, new)

    def after(self, gain: Array, position: Array, acceptance: Array) -> "Tuning":
        """Return the tuning after a move of parameters and noise (Andrieu and Thoms 2008)."""
        above = position - self.mean[None]
        spread = above.T @ above / len(position)
        # A floor relative to each variance, so that chains at one place keep a proposal.
        floor = 1e-6 * jnp.diag(jnp.diag(self.covariance))
        return Tuning(
            self.mean + gain * jnp.mean(above, axis=0),
            self.covariance + gain * (spread + floor - self.covariance),
            self.log_scale + gain * (jnp.mean(acceptance) - _ACCEPTANCE),
            self.log_decay,
        )

    def after_noise(self, gain: Array, change: Float[Array, " chains"]) -> "Tuning":
        """Return the tuning after a move of the noise that changed the log-evidence."""
        # Infinite or undefined changes count as large ones.
        squares = jnp.where(jnp.abs(change) < 2 * _CHANGE**0.5, change**2, 4 * _CHANGE)
        excess = jnp.mean(squares) / _CHANGE
        log_decay = jnp.clip(self.log_decay + gain * (1 - excess), jnp.log(_CLOSEST), 0.0)
        return eqx.tree_at(lambda t: t.log_decay, self, log_decay)


class Points(eqx.Module):
    """The positions of all chains."""

    position: Float[Array, "chains k"]  # unconstrained parameters
    log_prior: Float[Array, " chains"]  # of the position
    noise: Noise
    run: Run


class Chains(eqx.Module):
    """The state of all chains."""

    points: Points
    tuning: Tuning


class MarginalSampler(eqx.Module):
    """The transition kernel of the chains; without a `correlation`, the warm-up finds one."""

    process: HiddenProcess
    names: tuple[str, ...] = eqx.field(static=True)
    laws: tuple[Any, ...]  # prior of each parameter, as a distribution of NumPyro
    correlation: float | None = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def first(self, key: PRNGKeyArray, chains: int) -> Chains:
        """Return chains that start at the likeliest of some draws of the prior."""
        *keys, noise_key = jr.split(key, len(self.laws) + 1)
        pairs = list(zip(keys, self.laws, strict=True))
        shape = (_CANDIDATES, chains)
        drawn = jnp.stack([_free(law).inv(law.sample(key, shape)) for key, law in pairs], axis=-1)
        noises = [self.process.noise(key, chains) for key in jr.split(noise_key, _CANDIDATES)]
        points = [self._points(*pair) for pair in zip(drawn, noises, strict=True)]
        totals = jnp.stack([point.run.total for point in points])
        best = jnp.argmax(jnp.where(jnp.isnan(totals), -jnp.inf, totals), axis=0)
        pick = lambda *parts: jnp.stack(parts)[best, jnp.arange(chains)]
        chosen = jax.tree.map(pick, *points)
        covariance = jnp.diag(jnp.var(drawn.reshape(-1, len(self.laws)), axis=0))
        scale = jnp.log(jnp.asarray(len(self.laws) ** -0.5, drawn.dtype))
        decay = jnp.log(jnp.asarray(1 - (self.correlation or 0.0), drawn.dtype))
        return Chains(chosen, Tuning(jnp.mean(chosen.position, axis=0), covariance, scale, decay))

    def params(self, position: Float[Array, "chains k"]) -> dict[str, Float[Array, " chains"]]:
        """Return the parameters at unconstrained positions."""
        values = [_free(law)(column) for law, column in zip(self.laws, position.T, strict=True)]
        return dict(zip(self.names, values, strict=True))

    def step(
        self, key: PRNGKeyArray, index: Array, chains: Chains
    ) -> tuple[Chains, dict[str, Array]]:
        """Return the chains after the moves of one draw, and what is recorded of it."""

        def move(i: Array, carry: tuple[Chains, Array, Array]) -> tuple[Chains, Array, Array]:
            chains, *shares = self._move(key, index * _MOVES + i, carry[0])
            return chains, carry[1] + shares[0] / _MOVES, carry[2] + shares[1] / _MOVES

        none = jnp.zeros_like(chains.points.log_prior)
        chains, *means = jax.lax.fori_loop(0, _MOVES, move, (chains, none, none))
        return chains, self._record(chains, *means)

    def _move(self, key: PRNGKeyArray, index: Array, chains: Chains) -> tuple[Chains, Array, Array]:
        """Return chains after one move; probabilities of acceptance, and of an undefined one."""
        step_key, noise_key, accept_key = jr.split(jr.fold_in(key, index), 3)
        old, tuning = chains.points, chains.tuning
        # To find the correlation, the first move of each draw of the warm-up keeps parameters.
        alone = (index % _MOVES == 0) & (index < self.warmup * _MOVES) & (self.correlation is None)
        steps = tuning.steps(jr.normal(step_key, old.position.shape))
        fresh = self.process.noise(noise_key, len(steps))
        position = old.position + jnp.where(alone, 0.0, steps)
        new = self._points(position, tuning.noise(old.noise, fresh))
        after, acceptance, undefined = _accepted(accept_key, old, new)
        gain = self._gain(index)
        with_steps = tuning.after(gain, after.position, acceptance)
        with_noise = tuning.after_noise(gain, new.run.total - old.run.total)
        tuned = jax.tree.map(lambda a, b: jnp.where(alone, a, b), with_noise, with_steps)
        return Chains(after, tuned), acceptance, undefined

    def _gain(self, index: Array) -> Float[Array, ""]:
        """Return the rate of adaptation at one move; zero after the warm-up."""
        return jnp.where(index < self.warmup * _MOVES, (index + _OFFSET) ** -_EXPONENT, 0.0)

    def _points(self, position: Float[Array, "chains k"], noise: Noise) -> Points:
        run = self.process.run(noise, self.params(position))
        return Points(position, self._log_prior(position), noise, run)

    def _record(self, chains: Chains, acceptance: Array, undefined: Array) -> dict[str, Array]:
        points = chains.points
        statistics = {
            "acceptance_rate": acceptance,
            "log_evidence": points.run.total,
            "undefined": undefined,
            "lp": points.run.total + points.log_prior,
        }
        return {**self.params(points.position), "path": points.run.path, **statistics}

    def _log_prior(self, position: Float[Array, "chains k"]) -> Float[Array, " chains"]:
        """Return the log-density of the prior of unconstrained positions."""
        value = jnp.zeros(len(position), position.dtype)
        for law, free in zip(self.laws, position.T, strict=True):
            number = _free(law)(free)
            value += law.log_prob(number) + _free(law).log_abs_det_jacobian(free, number)
        return value


def _free(law: Any) -> Any:
    """Return the map from the real line onto the support of a prior."""
    return extra("numpyro.distributions").biject_to(law.support)


def _accepted(key: PRNGKeyArray, old: Points, new: Points) -> tuple[Points, Array, Array]:
    """Return the points after the accept-reject step, and the probability that it accepts."""
    log_ratio = new.run.total + new.log_prior - old.run.total - old.log_prior
    undefined = jnp.isnan(log_ratio)
    acceptance = jnp.where(undefined, 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jr.uniform(key, acceptance.shape) < acceptance

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old), acceptance, undefined.astype(acceptance.dtype)
