"""The parts of a density that files know: classes by name, and SDEs.

A density holds its SDE in several places. Files hold the SDE once, as a description, and a mark in
each of these places. SDEs that are derived from it, in the coordinates of a chart or along other
axes, are stored as what they are derived from.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial

from ..equation import moving_frame
from ..equation.moving_frame import Basis
from ..flow import affine, ansatz, coupling_flow, monotone, networks
from ..models.catalogue import model
from ..planning import plan
from ..sde import chart as charts
from ..sde import conditioning, domains, fingerprint, laws, mixture
from ..sde.argument_checks import checked_count
from ..sde.chart import Chart
from ..sde.domains import AbstractDomain
from ..sde.sde import SDE
from ..source import closure, cumulants, ensemble, gaussian_source, moments, separation
from ..source.separation import rotated_sde
from ..storage.codec import Decoder, Encoder
from ..storage.strict_json import DataFileError
from ..training import state
from . import abstract_learned, composed, lattice, learned
from .summary import equation_text

# Largest dimension of a state, and largest number of Brownian motions, in a file.
_MOST_COMPONENTS = 1000


@dataclasses.dataclass(frozen=True)
class StoredSDE:
    """The description of an SDE: all but its coefficients, whose text is for people to read."""

    dim: int
    noise_dim: int
    params: tuple[str, ...]
    domain: tuple[AbstractDomain, ...]
    model: str | None  # the name of the built-in model, if it is one
    arguments: str  # of the built-in model, as JSON
    text: dict[str, str]

    def __post_init__(self) -> None:
        for name in ("dim", "noise_dim"):
            if checked_count(f"sde.{name}", getattr(self, name)) > _MOST_COMPONENTS:
                raise DataFileError(
                    f"`sde.{name}` must be at most {_MOST_COMPONENTS}; got {getattr(self, name)}."
                )

    def rebuilt(self) -> SDE:
        """Return the SDE of the built-in model."""
        if self.model is None:
            raise DataFileError(
                "it was learned for an SDE of the user's, which files do not contain. Pass it: "
                "`load(path, sde=sde)`."
            )
        arguments = json.loads(self.arguments)
        # Before a model is built of a size that the file does not have.
        if not isinstance(arguments, dict) or arguments.get("dim", self.dim) != self.dim:
            raise DataFileError(f"`sde.arguments` must have `dim` {self.dim}; got {arguments}.")
        return model(self.model, **arguments).sde

    def stand_in(self) -> SDE:
        """Return an SDE of the same shapes whose coefficients vanish."""
        return SDE(
            lambda t, x, *p: jnp.zeros(self.dim),
            lambda t, x, *p: jnp.zeros((self.dim, self.noise_dim)),
            self.dim,
            params=self.params,
            domain=self.domain,
        )

    def require(self, sde: SDE) -> None:
        """Raise unless an SDE has this description."""
        if (sde.dim, sde.noise_dim) != (self.dim, self.noise_dim):
            raise DataFileError(
                f"it was learned for an SDE with {self.dim} components and {self.noise_dim} noise "
                f"columns; got {sde.dim} and {sde.noise_dim}."
            )
        if sde.params != self.params:
            raise DataFileError(
                f"it was learned for an SDE with the parameters {list(self.params)}; the SDE given "
                f"has {list(sde.params)}."
            )
        ends, found = ([part.ends for part in domain] for domain in (self.domain, sde.domain))
        if ends != found:
            raise DataFileError(
                f"it was learned on the domain {ends}, lower and upper ends of each component; "
                f"that of the SDE given is {found}."
            )


def stored_sde(sde: SDE) -> StoredSDE:
    """Describe an SDE."""
    name, arguments = sde.origin or (None, "{}")
    shape = sde.dim, sde.noise_dim, sde.params, sde.domain
    return StoredSDE(*shape, name, arguments, equation_text(sde))


# All classes that files may name. A new one is added here.
_NAMES: dict[Any, str] = {
    learned: "TransitionDensity",
    composed: "ComposedDensity",
    lattice: "Lattice",
    abstract_learned: "Provenance",
    plan: "Plan",
    state: "Record Status Trajectory",
    fingerprint: "Fingerprint",
    conditioning: "ConditioningLaws",
    charts: "Chart CoordinateLaw",
    domains: "Real Positive Interval",
    laws: "Normal Uniform LogNormal Product",
    mixture: "Mixture",
    ansatz: "RawAnsatz StandardisedAnsatz",
    coupling_flow: "CouplingFlow Pair Coupling Mixing IdentityFlow SkewedFlow",
    affine: "AffineCoupling",
    monotone: "MonotoneCoupling",
    networks: "OwnNetworks SharedNetwork GRUConditioner TanhConditioner Linear Quadratic",
    gaussian_source: "EulerSource",
    closure: "ClosureSource",
    moments: "MomentSource",
    separation: "RotatedSource",
    ensemble: "Ensemble Spline",
    cumulants: "CumulantSource",
    moving_frame: "Basis",
}
CLASSES: dict[str, type] = {
    **{name: getattr(module, name) for module, names in _NAMES.items() for name in names.split()},
    **{"StoredSDE": StoredSDE, "equinox.Linear": eqx.nn.Linear, "equinox.GRUCell": eqx.nn.GRUCell},
}


def with_users(classes: Iterable[type]) -> dict[str, type]:
    """Return the registry with further classes of the user."""
    found = dict(CLASSES)
    for cls in classes:
        if not (
            isinstance(cls, type) and (dataclasses.is_dataclass(cls) or issubclass(cls, tuple))
        ):
            raise ValueError(f"`classes` must be module or dataclass types; got {cls!r}.")
        if cls.__name__ in CLASSES:
            raise ValueError(f"diracflow has a class `{cls.__name__}` already; rename yours.")
        found[cls.__name__] = cls
    return found


def encode_sde(encoder: Encoder, value: Any, path: str) -> dict[str, Any] | None:
    """Encode an SDE by what it is derived from."""
    if not isinstance(value, SDE):
        return None
    match value._drift.args if isinstance(value._drift, Partial) else ():
        case (Chart() as chart,):
            return {"sde": "charted", "chart": encoder(chart, f"{path}.chart")}
        case (SDE() as base, Basis() as basis):
            parts = {"base": base, "basis": basis}
            coded = {name: encoder(part, f"{path}.{name}") for name, part in parts.items()}
            return {"sde": "rotated", **coded}
    return {"sde": "given"}


def sde_decoder(sde: SDE) -> Any:
    """Return the inverse of `encode_sde` for the SDE that a density is given."""

    def decode(decoder: Decoder, node: dict[str, Any], path: str) -> SDE:
        match node:
            case {"sde": "given", **rest} if not rest:
                return sde
            case {"sde": "charted", "chart": inner, **rest} if not rest:
                chart = decoder(inner, f"{path}.chart")
                if isinstance(chart, Chart):
                    return chart.equation()
            case {"sde": "rotated", "base": base, "basis": axes, **rest} if not rest:
                parts = decoder(base, f"{path}.base"), decoder(axes, f"{path}.basis")
                if isinstance(parts[0], SDE) and isinstance(parts[1], Basis):
                    return rotated_sde(*parts)
        raise DataFileError(f"`{path}` is not an object that files have; got {str(node)[:60]}.")

    return decode
