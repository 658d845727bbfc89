r"""Itô equations $dX = b(t, X)\,dt + \sigma(t, X)\,dW$ on $\mathbb{R}^d$.

The coefficients are functions of one point, written with `jax.numpy`. JAX derives batches,
derivatives and the covariance from them.

Coefficients may depend on parameters, which are constant along a path. Such an SDE is a family.
`at` returns one of its members, and only members have a drift.
"""

import copy
import numbers
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from .argument_checks import real_numbers
from .domains import AbstractDomain, Real, domains_of
from .parameters import Params, check_names, checked_param

# Name of a built-in model, and its arguments as JSON, because static fields must be hashable.
Origin = tuple[str, str]
# A function of `(t, x)`, or of `(t, x, p)` with parameters by name.
Coefficient = Callable[..., Array]


class SDE(eqx.Module):
    r"""The equation $dX = b(t, X)\,dt + \sigma(t, X)\,dW$.

    **Arguments:**

    - `drift`: the function $b(t, x)$ of a scalar and a point of shape `(dim,)`. It returns shape
        `(dim,)`, or a scalar in one dimension.
    - `diffusion`: the function $\sigma(t, x)$, a square root of the covariance
        $\Sigma = \sigma\sigma^\top$. It returns shape `(dim, m)`, one column for each of the `m`
        independent Brownian motions. A vector of length `dim` is the diagonal of $\sigma$, and in
        one dimension a scalar is accepted. Constant noise may be passed as such a number, vector or
        matrix.
    - `dim`: the dimension $d$ of the state. It may be omitted if `diffusion` is constant.
    - `params`: names of parameters. Coefficients then take a third argument, a mapping `p` of these
        names to scalars.
    - `domain`: the domain of the components, `Real()`, `Positive()` or `Interval(a, b)`: one for
        all components, or a tuple with one for each. Coefficients are evaluated only inside.

    Shapes and types are checked by abstract evaluation.

    >>> import jax.numpy as jnp
    >>> import diracflow as df
    >>> sde = df.SDE(drift=lambda t, x: -x, diffusion=lambda t, x: jnp.eye(2), dim=2)
    >>> sde.noise_dim
    2
    >>> df.SDE(drift=lambda t, x: -x, diffusion=0.7).dim
    1
    >>> family = df.SDE(
    ...     drift=lambda t, x, p: -p["rate"] * x,
    ...     diffusion=lambda t, x, p: jnp.eye(1),
    ...     dim=1,
    ...     params=("rate",),
    ... )
    >>> family.at({"rate": 2.0}).drift(0.0, jnp.ones(1)).tolist()
    [-2.0]
    """

    _drift: Coefficient
    _diffusion: Coefficient
    _names: tuple[str, ...] = eqx.field(static=True)
    _values: Float[Array, " k"] | None  # of the parameters of a member
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    _origin: Origin | None = eqx.field(static=True)
    domain: tuple[AbstractDomain, ...]

    def __init__(
        self,
        drift: Coefficient,
        diffusion: Coefficient | ArrayLike,
        dim: int | None = None,
        *,
        params: tuple[str, ...] = (),
        domain: AbstractDomain | Sequence[AbstractDomain] = Real(),  # noqa: B008 (immutable)
    ):
        constant = not callable(diffusion)
        if not callable(diffusion):
            matrix = _constant_diffusion(diffusion)
            dim = len(matrix) if dim is None else dim
            diffusion = Partial(_constant, matrix)
        if isinstance(dim, bool) or not isinstance(dim, numbers.Integral) or dim < 1:
            raise ValueError(
                f"`dim` must be a positive integer, the length of a state; got {dim!r}."
            )
        names = _checked_names(params)
        drift_shape = _traced_shape("drift", drift, dim, names)
        if drift_shape != (dim,) and (dim, drift_shape) != (1, ()):
            raise ValueError(
                f"`drift{_arguments(names)}` must return shape ({dim},), one number for each "
                f"component; got {drift_shape}."
            )
        diffusion_shape = _traced_shape("diffusion", diffusion, dim, names)
        if diffusion_shape == (dim,) or (dim, diffusion_shape) == (1, ()):
            diffusion_shape = (dim, dim)  # diagonal
        if len(diffusion_shape) != 2 or diffusion_shape[0] != dim or diffusion_shape[1] < 1:
            must = "` must have" if constant else f"{_arguments(names)}` must return"
            raise ValueError(
                f"`diffusion{must} shape ({dim}, m), one column for each Brownian motion; got "
                f"{diffusion_shape}. For independent noise in each component "
                f"{'pass' if constant else 'return'} a vector of length {dim}."
            )
        self.domain = domains_of(domain, dim)
        self._drift = drift
        self._diffusion = diffusion
        self._names, self._values = names, None
        self.dim = int(dim)
        self.noise_dim = diffusion_shape[1]
        self._origin = None

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters; empty for a member of a family."""
        return () if self._values is not None else self._names

    @property
    def origin(self) -> Origin | None:
        """Name and arguments of the built-in model, or `None`; members of a family have none."""
        return self._origin if self._values is None else None

    def with_origin(self, origin: Origin) -> "SDE":
        """Return the same SDE as that of a built-in model."""
        named = copy.copy(self)
        object.__setattr__(named, "_origin", origin)  # static, and modules are frozen
        return named

    def at(self, params: Params) -> "SDE":
        """Return the member of the family with the given parameters.

        **Arguments:**

        - `params`: a mapping of the names in `params` to scalars.
        """
        check_names(self.params, params, "SDE")
        values = [checked_param(name, params[name], {}) for name in self.params]
        for name, value in zip(self.params, values, strict=True):
            if value.ndim:
                raise ValueError(f"`{name}` must be one number; got shape {value.shape}.")
        return self.with_values(jnp.stack(values)) if values else self

    def with_values(self, values: Float[Array, " k"]) -> "SDE":
        """Return `at` for an array of values in the order of `params`."""
        return eqx.tree_at(lambda sde: sde._values, self, values, is_leaf=lambda v: v is None)

    def drift(self, t: Float[ArrayLike, ""], x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the drift $b(t, x)$ at one state."""
        x = self._point(x)
        return jnp.asarray(self._drift(t, x, *self._parameters()), x.dtype).reshape(self.dim)

    def diffusion(self, t: Float[ArrayLike, ""], x: Float[Array, " d"]) -> Float[Array, "d m"]:
        r"""Return the diffusion $\sigma(t, x)$ at one state, a square root of the covariance."""
        x = self._point(x)
        sigma = jnp.asarray(self._diffusion(t, x, *self._parameters()), x.dtype)
        return sigma if sigma.ndim == 2 else jnp.diag(sigma.reshape(self.dim))

    def covariance(self, t: Float[ArrayLike, ""], x: Float[Array, " d"]) -> Float[Array, "d d"]:
        r"""Return the covariance $\Sigma = \sigma\sigma^\top$ at one state."""
        sigma = self.diffusion(t, x)
        return sigma @ sigma.T

    def _point(self, x: ArrayLike) -> Float[Array, " d"]:
        """Return one state as floats, after checking its shape."""
        point = x if isinstance(x, jax.Array) else real_numbers("x", x)
        if point.shape != (self.dim,):
            raise ValueError(
                f"Coefficients are functions of one state `x` of shape ({self.dim},); got shape "
                f"{point.shape}. Use `jax.vmap` for several."
            )
        floating = jnp.issubdtype(point.dtype, jnp.floating)
        return jnp.asarray(point) if floating else jnp.asarray(point, jnp.result_type(float))

    def _parameters(self) -> tuple[dict[str, Array], ...]:
        """Return the arguments of coefficients after `t` and `x`."""
        if not self._names:
            return ()
        if self._values is None:
            raise ValueError(
                f"This SDE has the parameters {', '.join(self._names)}; only its members have "
                "coefficients. Use `sde.at({...})`, with a number for each."
            )
        return (dict(zip(self._names, self._values, strict=True)),)


def _constant(value: Array, t: Array, x: Array, *params: Params) -> Array:
    return jnp.asarray(value)


def _constant_diffusion(value: object) -> Float[np.ndarray, "d m"]:
    """Return the matrix of a constant diffusion, from a number, a diagonal or a matrix."""
    try:
        invalid = value is None or isinstance(value, bool | str | bytes)
        array = None if invalid else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim > 2 or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(
            "`diffusion` must be a function of `(t, x)`, or constant: a finite number, a vector "
            f"(diagonal noise) or a matrix of shape (dim, m); got {value!r}."
        )
    return array if array.ndim == 2 else np.diag(array.reshape(-1))


def _checked_names(params: object) -> tuple[str, ...]:
    names = tuple(params) if isinstance(params, tuple | list) else ()
    good = all(isinstance(name, str) and name for name in names)
    if not isinstance(params, tuple | list) or not good or len(set(names)) < len(names):
        raise ValueError(
            f'`params` must be distinct names, such as `("rate", "noise")`; got {params!r}.'
        )
    return names


def _arguments(names: tuple[str, ...]) -> str:
    return "(t, x, p)" if names else "(t, x)"


def _traced_shape(
    name: str, coefficient: Coefficient, dim: int, names: tuple[str, ...]
) -> tuple[int, ...]:
    """Return the shape of the value of a coefficient, by abstract evaluation."""
    called = f"{name}{_arguments(names)}"
    if not callable(coefficient):
        raise ValueError(
            f"`{name}` must be a function of `{_arguments(names)}`; "
            f"got {type(coefficient).__name__}."
        )
    number = jnp.result_type(float)
    scalar, x = jax.ShapeDtypeStruct((), number), jax.ShapeDtypeStruct((dim,), number)
    arguments = (scalar, x, dict.fromkeys(names, scalar)) if names else (scalar, x)
    try:
        value = eqx.filter_eval_shape(lambda *a: jnp.asarray(coefficient(*a)), *arguments)
    except Exception as error:
        third = f", `p` maps {', '.join(names)} to scalars" if names else ""
        raise ValueError(
            f"`{called}` could not be traced for a scalar `t` and an `x` of shape ({dim},){third}. "
            f"It must be a function of {'three' if names else 'two'} arguments written with "
            "`jax.numpy` (no `numpy`, no `if` on values). Parameters `p` are passed to both "
            "coefficients if `params` names any, and only then. "
            f"{type(error).__name__}: {error}"
        ) from error
    if not (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)):
        raise ValueError(f"`{called}` must return real numbers; got dtype {value.dtype}.")
    return value.shape
