r"""Itô equations $dX = b(t, X)\,dt + \sigma(t, X)\,dW$ on $\mathbb{R}^d$.

The coefficients are functions of one point. Everything else (batches, derivatives, covariance)
is made from them by JAX, so they must be written with `jax.numpy`.
"""

import numbers
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .domains import AbstractDomain, Real, domains_of

# Name of the built-in model an SDE comes from, and its arguments as JSON: static fields are hashed.
Origin = tuple[str, str]
Coefficient = Callable[[Float[Array, ""], Float[Array, " d"]], Array]


class SDE(eqx.Module):
    r"""The equation $dX = b(t, X)\,dt + \sigma(t, X)\,dW$.

    **Arguments:**

    - `drift`: the function $b(t, x)$ of a scalar and a point of shape `(dim,)`; shape `(dim,)`.
    - `diffusion`: the function $\sigma(t, x)$, to shape `(dim, m)`: one column for each of the `m`
        independent Brownian motions, a square root of the covariance $\Sigma = \sigma\sigma^\top$.
    - `dim`: the dimension $d$ of the state.
    - `domain`: where the components live: `Real()`, `Positive()` or `Interval(a, b)`, one for all
        or a tuple of one for each. Coefficients are evaluated inside only.
    - `origin`: set by the built-in models, so that files can name them.

    Shapes and types are checked at once, without evaluating anything.

    >>> import jax.numpy as jnp
    >>> import diracflow as df
    >>> sde = df.SDE(drift=lambda t, x: -x, diffusion=lambda t, x: jnp.eye(2), dim=2)
    >>> sde.noise_dim
    2
    """

    _drift: Coefficient
    _diffusion: Coefficient
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    domain: tuple[AbstractDomain, ...]
    origin: Origin | None = eqx.field(static=True)

    def __init__(
        self,
        drift: Coefficient,
        diffusion: Coefficient,
        dim: int,
        *,
        domain: AbstractDomain | Sequence[AbstractDomain] = Real(),  # noqa: B008 (immutable)
        origin: Origin | None = None,
    ):
        if isinstance(dim, bool) or not isinstance(dim, numbers.Integral) or dim < 1:
            raise ValueError(
                f"`dim` must be a positive integer, the length of a state; got {dim!r}."
            )
        drift_shape = _traced_shape("drift", drift, dim)
        if drift_shape != (dim,):
            raise ValueError(
                f"`drift(t, x)` must return shape ({dim},), one number for each component; "
                f"got {drift_shape}."
            )
        diffusion_shape = _traced_shape("diffusion", diffusion, dim)
        if len(diffusion_shape) != 2 or diffusion_shape[0] != dim or diffusion_shape[1] < 1:
            raise ValueError(
                f"`diffusion(t, x)` must return shape ({dim}, m), one column for each Brownian "
                f"motion; got {diffusion_shape}. For independent noise in each component return "
                "`jnp.diag(...)`."
            )
        self.domain = domains_of(domain, dim)
        self._drift = drift
        self._diffusion = diffusion
        self.dim = int(dim)
        self.noise_dim = diffusion_shape[1]
        self.origin = origin

    def drift(self, t: Float[Array, ""], x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The drift $b(t, x)$."""
        return jnp.asarray(self._drift(t, x), x.dtype)

    def diffusion(self, t: Float[Array, ""], x: Float[Array, " d"]) -> Float[Array, "d m"]:
        r"""A square root $\sigma(t, x)$ of the covariance."""
        return jnp.asarray(self._diffusion(t, x), x.dtype)

    def covariance(self, t: Float[Array, ""], x: Float[Array, " d"]) -> Float[Array, "d d"]:
        r"""The covariance $\Sigma = \sigma\sigma^\top$."""
        sigma = self.diffusion(t, x)
        return sigma @ sigma.T


def _traced_shape(name: str, coefficient: Coefficient, dim: int) -> tuple[int, ...]:
    """Shape of a coefficient's value, found by abstract evaluation."""
    if not callable(coefficient):
        raise ValueError(
            f"`{name}` must be a function of `(t, x)`; got {type(coefficient).__name__}."
        )
    number = jnp.result_type(float)
    t, x = jax.ShapeDtypeStruct((), number), jax.ShapeDtypeStruct((dim,), number)
    try:
        value = eqx.filter_eval_shape(lambda t, x: jnp.asarray(coefficient(t, x)), t, x)
    except Exception as error:
        raise ValueError(
            f"`{name}(t, x)` could not be traced for a scalar `t` and an `x` of shape ({dim},). It "
            "must be a function of two arguments written with `jax.numpy` (no `numpy`, no `if` on "
            f"values). {type(error).__name__}: {error}"
        ) from error
    if not (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)):
        raise ValueError(f"`{name}(t, x)` must return real numbers; got dtype {value.dtype}.")
    return value.shape
