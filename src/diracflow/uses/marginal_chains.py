r"""Particle marginal Metropolis--Hastings with correlated noise, in several chains at once.

A chain moves parameters by a random walk and the noise of its particle filter by
$u' = \rho u + \sqrt{1-\rho^2}\,\epsilon$, both at once. The estimate of the evidence is unbiased,
so the chain has the exact posterior as its law, whatever the number of particles. Correlation makes
the noise of two successive estimates cancel in their ratio. With $\rho=0$ the chain is plain
particle marginal Metropolis--Hastings (Andrieu, Doucet and Holenstein 2010).

During the warm-up, and only then, proposals learn their covariance from all chains.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .evidence import HiddenProcess, Noise, Run
from .extras import extra

# Random walks of few dimensions are most efficient near this acceptance rate; noise in the
# evidence lowers the best rate from 0.44 or 0.23 (Sherlock et al. 2015).
_ACCEPTANCE = 0.2
# Adaptation decays as the iteration plus this offset to the power of minus the exponent.
_OFFSET, _EXPONENT = 10.0, 0.6
# Draws of the prior from which each chain starts at the likeliest.
_CANDIDATES = 10


class Tuning(eqx.Module):
    """The law of the steps of all chains, in unconstrained coordinates."""

    mean: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    log_scale: Float[Array, ""]

    def steps(self, normal: Float[Array, "chains k"]) -> Float[Array, "chains k"]:
        """Return one step for each chain."""
        factor = jnp.linalg.cholesky(self.covariance)
        return jnp.exp(self.log_scale) * normal @ factor.T

    def after(self, gain: Array, position: Array, acceptance: Array) -> "Tuning":
        """Return the tuning after an iteration of all chains (Andrieu and Thoms 2008)."""
        above = position - self.mean[None]
        spread = above.T @ above / len(position)
        # A floor relative to each variance, so that chains at one place keep a proposal.
        floor = 1e-6 * jnp.diag(jnp.diag(self.covariance))
        return Tuning(
            self.mean + gain * jnp.mean(above, axis=0),
            self.covariance + gain * (spread + floor - self.covariance),
            self.log_scale + gain * (jnp.mean(acceptance) - _ACCEPTANCE),
        )


class Chains(eqx.Module):
    """The state of all chains."""

    position: Float[Array, "chains k"]  # unconstrained parameters
    log_prior: Float[Array, " chains"]  # of the position
    noise: Noise
    run: Run
    tuning: Tuning


class MarginalSampler(eqx.Module):
    """The transition kernel of the chains."""

    process: HiddenProcess
    names: tuple[str, ...] = eqx.field(static=True)
    laws: tuple[Any, ...]  # prior of each parameter, as a distribution of NumPyro
    correlation: float = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def first(self, key: PRNGKeyArray, chains: int) -> Chains:
        """Return chains that start at the likeliest of some draws of the prior."""
        *keys, noise_key = jr.split(key, len(self.laws) + 1)
        pairs = list(zip(keys, self.laws, strict=True))
        shape = (_CANDIDATES, chains)
        drawn = jnp.stack([_free(law).inv(law.sample(key, shape)) for key, law in pairs], axis=-1)
        noises = [self.process.noise(key, chains) for key in jr.split(noise_key, _CANDIDATES)]
        pairs = zip(noises, drawn, strict=True)
        runs = [self.process.run(noise, self.params(position)) for noise, position in pairs]
        totals = jnp.stack([run.total for run in runs])
        best = jnp.argmax(jnp.where(jnp.isnan(totals), -jnp.inf, totals), axis=0)
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *zip(noises, runs, strict=True))
        pick = lambda a: a[best, jnp.arange(chains)]
        noise, run = jax.tree.map(pick, stacked)
        position, every = pick(drawn), drawn.reshape(-1, len(self.laws))
        covariance = jnp.diag(jnp.var(every, axis=0))
        scale = jnp.log(jnp.asarray(len(self.laws) ** -0.5, drawn.dtype))
        tuning = Tuning(jnp.mean(position, axis=0), covariance, scale)
        return Chains(position, self._log_prior(position), noise, run, tuning)

    def params(self, position: Float[Array, "chains k"]) -> dict[str, Float[Array, " chains"]]:
        """Return the parameters at unconstrained positions."""
        values = [_free(law)(column) for law, column in zip(self.laws, position.T, strict=True)]
        return dict(zip(self.names, values, strict=True))

    def step(
        self, key: PRNGKeyArray, index: Array, chains: Chains
    ) -> tuple[Chains, dict[str, Array]]:
        """Return the chains after one iteration, and what is recorded of it."""
        step_key, noise_key, accept_key = jr.split(jr.fold_in(key, index), 3)
        normal = jr.normal(step_key, chains.position.shape)
        position = chains.position + chains.tuning.steps(normal)
        rho, other = self.correlation, (1 - self.correlation**2) ** 0.5
        fresh = self.process.noise(noise_key, len(position))
        noise = jax.tree.map(lambda old, new: rho * old + other * new, chains.noise, fresh)
        run = self.process.run(noise, self.params(position))
        log_prior = self._log_prior(position)
        log_ratio = run.total + log_prior - chains.run.total - chains.log_prior
        undefined = jnp.isnan(log_ratio)
        acceptance = jnp.where(undefined, 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accepted = jr.uniform(accept_key, acceptance.shape) < acceptance
        proposed = (position, log_prior, noise, run)
        before = (chains.position, chains.log_prior, chains.noise, chains.run)
        position, log_prior, noise, run = _chosen(accepted, proposed, before)
        gain = (index + _OFFSET) ** -_EXPONENT
        tuned = chains.tuning.after(jnp.where(index < self.warmup, gain, 0.0), position, acceptance)
        after = Chains(position, log_prior, noise, run, tuned)
        return after, self._record(after, acceptance, undefined)

    def _record(self, chains: Chains, acceptance: Array, undefined: Array) -> dict[str, Array]:
        statistics = {
            "acceptance_rate": acceptance,
            "log_evidence": chains.run.total,
            "undefined": undefined,
            "lp": chains.run.total + chains.log_prior,
        }
        return {**self.params(chains.position), "path": chains.run.path, **statistics}

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


def _chosen(accepted: Bool[Array, " chains"], new: Any, old: Any) -> Any:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
