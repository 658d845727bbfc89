"""Bad inputs over the whole public surface: each ends at once, in an error that says what to do.

Tables of calls and of a piece of the message. All of them fail before anything is compiled, and
share a density that was not trained.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from helpers import still_density

KEY = jr.key(0)
NAN, INF = np.nan, np.inf


def one(t, x):
    return jnp.eye(1)


def back(t, x):
    return -x


SDE = df.SDE(back, one, 1)
PLANE = df.models.ornstein_uhlenbeck(2)
EXACT = PLANE.exact  # two components, no parameters
FAMILY = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 1.0, "level": 0.0, "noise": 1.0}
OPEN = df.models.ornstein_uhlenbeck_family().sde
SEASON = df.models.seasonal().exact  # takes the time of the start
CIR = df.ExactCIR()
GBM = df.models.geometric_brownian().exact
RATES = {"rate": 3.0, "level": 0.3, "noise": 0.2}
ZERO = [0.0, 0.0]
TWO_LAWS = df.Uniform([0.0, 0.0], 1.0)
TRACED = "could not be traced"


@functools.cache
def learned():
    """A density whose flow has not moved."""
    return still_density(df.models.brownian(1), source="euler")


def with_(function, **usual):
    """The function with some arguments replaced."""
    return lambda **changes: lambda: function(**(usual | changes))


sde = with_(df.SDE, drift=back, diffusion=one, dim=1)
SDES = {
    "dim zero": (sde(dim=0), "`dim` must be a positive integer"),
    "dim fraction": (sde(dim=1.5), "`dim` must be a positive integer"),
    "dim text": (sde(dim="1"), "`dim` must be a positive integer"),
    "dim true": (sde(dim=True), "`dim` must be a positive integer"),
    "drift a number": (sde(drift=1.0), "must be a function of"),
    "drift too long": (sde(drift=lambda t, x: jnp.zeros(3)), r"must return shape \(1,\)"),
    "drift complex": (sde(drift=lambda t, x: 1j * x), "must return real numbers"),
    "drift boolean": (sde(drift=lambda t, x: x > 0), "must return real numbers"),
    "drift nothing": (sde(drift=lambda t, x: None), TRACED),
    "drift text": (sde(drift=lambda t, x: "x"), TRACED),
    "drift branches": (sde(drift=lambda t, x: x if x[0] > 0 else -x), "no `if` on values"),
    "drift in NumPy": (sde(drift=lambda t, x: np.sin(np.asarray(x))), "no `numpy`"),
    "drift of one argument": (sde(drift=lambda x: x), "function of two arguments"),
    "diffusion a longer vector": (sde(diffusion=lambda t, x: jnp.ones(3)), "return a vector"),
    "diffusion text": (sde(diffusion="0.7"), "or constant: a finite number"),
    "diffusion nothing": (sde(diffusion=None), "or constant: a finite number"),
    "diffusion infinite": (sde(diffusion=np.inf), "or constant: a finite number"),
    "diffusion too long": (sde(diffusion=[1.0, 2.0]), r"`diffusion` must have shape \(1, m\)"),
    "diffusion too short": (sde(diffusion=0.7, dim=2), "pass a vector of length 2"),
    "no dim": (sde(dim=None), "`dim` must be a positive integer"),
    "no column": (sde(diffusion=lambda t, x: jnp.ones((1, 0))), "one column for each"),
    "params one name": (sde(params="rate"), "must be distinct names"),
    "params twice": (sde(params=("a", "a")), "must be distinct names"),
    "params numbers": (sde(params=(1,)), "must be distinct names"),
    "params not taken": (sde(params=("a",)), "function of three arguments"),
    "domain text": (sde(domain="positive"), "`domain` must be"),
    "domain a class": (sde(domain=df.Positive), "`domain` must be"),
    "domains too many": (sde(domain=(df.Real(), df.Real())), "2 components; the SDE has 1"),
    "at some": (lambda: OPEN.at({"rate": 1.0}), "missing. Pass all of them"),
    "at others": (lambda: OPEN.at(PARAMS | {"b": 1.0}), "it has no `b`"),
    "at NaN": (lambda: OPEN.at(PARAMS | {"rate": NAN}), "must be finite"),
    "at several": (lambda: OPEN.at(PARAMS | {"rate": [1.0, 2.0]}), "must be one number"),
    "at a list": (lambda: OPEN.at([1, 2, 3]), "must map names to numbers"),
    "drift of a family": (lambda: OPEN.drift(0.0, jnp.ones(1)), "has the parameters"),
    "drift elsewhere": (lambda: SDE.drift(0.0, jnp.ones(3)), r"one state `x` of shape \(1,\)"),
    "diffusion of text": (lambda: SDE.diffusion(0.0, "x"), "array of real numbers"),
    "scale": (lambda: df.Positive(scale=-1.0), "`scale` must be positive"),
    "power": (lambda: df.Positive(power="a"), "`power` must be one finite number"),
    "power infinite": (lambda: df.Positive(power=INF), "`power` must be one finite number"),
    "interval turned": (lambda: df.Interval(1.0, 0.0), "`low < high`"),
    "interval NaN": (lambda: df.Interval(0.0, NAN), "`high` must be one finite number"),
    "interval open": (lambda: df.Interval(None, 1.0), "`low` must be one finite number"),
    "arcsine": (lambda: df.Interval(0.0, 1.0, arcsine="yes"), "`arcsine` must be True"),
}

flat = df.Normal(ZERO, 1.0)
LAWS = {
    "std negative": (lambda: df.Normal(0.0, -1.0), "`std` must be positive"),
    "std zero": (lambda: df.Normal(0.0, 0.0), "`std` must be positive"),
    "std infinite": (lambda: df.Normal(0.0, INF), "`std` must be finite"),
    "mean NaN": (lambda: df.Normal(NAN), "`mean` must be finite"),
    "mean text": (lambda: df.Normal("a"), "`mean` must hold real numbers"),
    "mean complex": (lambda: df.Normal(1j), "`mean` must hold real numbers"),
    "mean ragged": (lambda: df.Normal([[1.0], [1.0, 2.0]]), "`mean` must hold real numbers"),
    "mean a mapping": (lambda: df.Normal({}), "`mean` must hold real numbers"),
    "mean a matrix": (lambda: df.Normal([[0.0]]), "scalar or a vector"),
    "mean empty": (lambda: df.Normal([]), "scalar or a vector"),
    "std and covariance": (lambda: df.Normal(0.0, 1.0, covariance=[[1.0]]), "got both"),
    "not symmetric": (lambda: df.Normal(0.0, covariance=[[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
    "not definite": (lambda: df.Normal(0.0, covariance=[[1, 2], [2, 1]]), "positive definite"),
    "covariance a vector": (lambda: df.Normal(0.0, covariance=[1.0, 2.0]), "square matrix"),
    "covariance text": (lambda: df.Normal(0.0, covariance="a"), "must hold real numbers"),
    "lengths": (lambda: df.Normal(ZERO, [1.0] * 3), "'mean': 2, 'std': 3"),
    "uniform turned": (lambda: df.Uniform(1.0, 0.0), "`low < high`"),
    "uniform empty": (lambda: df.Uniform(1.0, 1.0), "`low < high`"),
    "uniform infinite": (lambda: df.Uniform(0.0, INF), "`high` must be finite"),
    "uniform text": (lambda: df.Uniform("a", "b"), "`low` must hold real numbers"),
    "lognormal std": (lambda: df.LogNormal(0.0, 0.0), "`std` must be positive"),
    "lognormal none": (lambda: df.LogNormal(0.0, None), "`std` must be positive"),
    "product of nothing": (df.Product, "takes one or more"),
    "product of a list": (lambda: df.Product([df.Normal()]), "takes one or more"),
    "product expanded": (lambda: df.Product(df.Normal()).expand(2), "has 1 components"),
    "mixture of nothing": (lambda: df.Mixture([]), "list of one or more"),
    "mixture of a law": (lambda: df.Mixture(df.Normal()), "list of one or more"),
    "mixture of numbers": (lambda: df.Mixture([1.0]), "list of one or more"),
    "weights too many": (lambda: df.Mixture([df.Normal()], [1, 2]), "needs 1 weights"),
    "weights negative": (lambda: df.Mixture([flat, flat], [1, -1]), "positive and finite"),
    "weights text": (lambda: df.Mixture([flat, flat], ["a", "b"]), "must hold real numbers"),
    "mixture of dims": (lambda: df.Mixture([flat, df.Normal([0.0] * 3)]), "the same dimension"),
    "key": (lambda: flat.sample(0.5), "`key` must be a seed or come from"),
    "shape negative": (lambda: flat.sample(KEY, (-1,)), "must not be negative"),
    "shape fraction": (lambda: flat.sample(KEY, (1.5,)), "whole numbers"),
    "point too long": (lambda: flat.log_prob([1.0, 2.0, 3.0]), "of length 2"),
    "point a number": (lambda: df.Normal().log_prob(1.0), "The last axis of `x`"),
    "point text": (lambda: flat.log_prob("a"), "array of real numbers"),
    "point NaN": (lambda: flat.log_prob([NAN, 0.0]), "contains NaN"),
    "coverage": (lambda: flat.coverage([1.0]), "of length 2"),
    "expanded": (lambda: flat.expand(3), "has 2 components; the problem has 3"),
    "expanded to none": (lambda: df.Normal().expand(0), "`dim` must be at least 1"),
    "expanded to text": (lambda: df.Normal().expand("a"), "`dim` must be a whole number"),
}

learn = with_(df.learn, sde=SDE, starts=df.Normal(0.0, 1.0), horizon=0.1, key=KEY)
box = {"rate": df.Uniform(1, 2), "level": df.Uniform(), "noise": df.Uniform(0.1, 1)}
LEARN = {
    "a model": (learn(sde=PLANE), "must be a `diracflow.SDE`; got Model"),
    "no SDE": (learn(sde=None), "must be a `diracflow.SDE`"),
    "starts a number": (learn(starts=0.0), "`starts` must be a law"),
    "starts too long": (learn(starts=flat), "has 2 components; the problem has 1"),
    "starts outside": (learn(sde=df.models.cir().sde), "`starts` must lie inside the domain"),
    "key twice": (lambda: df.learn(0, SDE, df.Normal(), 0.1, key=0), "given twice"),
    "key first": (lambda: df.learn(KEY, SDE, df.Normal(), -1), "`horizon` must be positive"),
    "seed first": (lambda: df.learn(0, SDE, df.Normal(), horizon=-1), "must be positive"),
    "horizon zero": (learn(horizon=0), "`horizon` must be positive"),
    "horizon negative": (learn(horizon=-1), "`horizon` must be positive"),
    "horizon NaN": (learn(horizon=NAN), "`horizon` must be one finite number"),
    "horizon infinite": (learn(horizon=INF), "`horizon` must be one finite number"),
    "horizon text": (learn(horizon="1"), "`horizon` must be one finite number"),
    "horizon true": (learn(horizon=True), "`horizon` must be one finite number"),
    "horizons": (learn(horizon=[1.0, 2.0]), "`horizon` must be one finite number"),
    "key a number": (learn(key=0.5), "`key` must be a seed or come from `jax.random.key"),
    "key none": (learn(key=None), "`key` must be a seed or come from"),
    "keys": (learn(key=jr.split(KEY)), "must be one key"),
    "key of floats": (learn(key=jnp.ones(2)), "array of dtype float"),
    "preset": (learn(preset="best"), "one of quick, accurate, paper"),
    "preset none": (learn(preset=None), "one of quick, accurate, paper"),
    "setting": (learn(layerz=2), "Unknown setting 'layerz'"),
    "params not asked": (learn(params={"a": df.Uniform()}), "has no parameters"),
    "params missing": (learn(sde=OPEN), "missing. Pass all of them"),
    "params numbers": (learn(sde=OPEN, params=PARAMS), "law of one number"),
    "params a list": (learn(sde=OPEN, params=[1]), "must map names"),
    "params of two": (learn(sde=OPEN, params=box | {"rate": TWO_LAWS}), "law of one number"),
    "start time text": (learn(start_time="a"), "`start_time` must be one finite number"),
    "start time none": (learn(start_time=None), "`start_time` must be one finite number"),
    "start time NaN": (learn(start_time=NAN), "`start_time` must be one finite number"),
    "start times of two": (learn(start_time=TWO_LAWS), "law of one number"),
    "progress": (learn(progress="yes"), "`progress` must be True or False"),
    "certify": (learn(certify="no"), "`certify` must be True or False"),
    "drift undefined": (
        learn(sde=df.SDE(lambda t, x: jnp.log(x - 100), one, 1)),
        "`drift` is not finite at",
    ),
    "noise infinite": (
        learn(sde=df.SDE(back, lambda t, x: jnp.full((1, 1), jnp.inf), 1)),
        "`diffusion` is not finite at",
    ),
    "no noise": (
        learn(sde=df.SDE(back, lambda t, x: jnp.zeros((1, 1)), 1)),
        "Noise must reach every component",
    ),
    "source": (
        learn(sde=df.models.linear_langevin().sde, source="euler"),
        "needs noise in every component",
    ),
}

WRONG_SETTINGS = {
    "tolerance": (0, -1, NAN, INF, "a", None),
    "layers": (3, 0, 2.5, "4", True),
    "hidden": (0,),
    "bumps": (0, None),
    "samples": (1,),
    "max_steps": (0, None),
    "idle_dim": (0,),
    "beta": (0, 1),
    "first_time": (0,),
    "effective_share": (0, 2, None),
    "regularisation": (-1,),
    "momentum": (1, "a", np.array([0, 0])),
    "recall": (-1,),
    "allowance": (0,),
    "max_seconds": (0, -5, None),
    "flow": ("spline", None, ["affine"]),
    "source": ("best",),
    "masks": ("none",),
    "sampling": ("grid",),
}
SETTINGS = {
    f"{name} {value}": (with_(df.Settings)(**{name: value}), f"`{name}` must")
    for name, values in WRONG_SETTINGS.items()
    for value in values
}

log_prob = with_(EXACT.log_prob, x=ZERO, t=0.5, x0=ZERO)
family = with_(FAMILY.log_prob, x=[0.0], t=0.5, x0=[0.0], params=PARAMS)
season = with_(SEASON.log_prob, x=[0.0], t=0.5, x0=[0.0])
sample = with_(EXACT.sample, key=KEY, t=0.5, x0=ZERO)
at = EXACT.at(0.5, ZERO)
QUERIES = {
    "x NaN": (log_prob(x=[NAN, 0.0]), "`x` contains NaN"),
    "x a number": (log_prob(x=0.0), "The last axis of `x` must be the state"),
    "x too short": (log_prob(x=[0.0]), "of length 2; got shape"),
    "x text": (log_prob(x="a"), "`x` must be an array of real numbers"),
    "x none": (log_prob(x=None), "`x` must be an array of real numbers"),
    "x complex": (log_prob(x=[1j, 0.0]), "`x` must be an array of real numbers"),
    "x boolean": (log_prob(x=[True, False]), "got dtype bool"),
    "x ragged": (log_prob(x=[[0.0], ZERO]), "`x` must be an array of real numbers"),
    "x texts": (log_prob(x=["a", "b"]), "`x` must be an array of real numbers"),
    "x dates": (log_prob(x=np.array(["2020-01-01"] * 2, "M8[D]")), "real numbers"),
    "t zero": (log_prob(t=0), "At t = 0 the law is the point mass"),
    "t negative": (log_prob(t=-1.0), r"`t` must lie in \(0, inf\)"),
    "t NaN": (log_prob(t=NAN), r"`t` must lie in \(0, inf\)"),
    "t infinite": (log_prob(t=INF), r"`t` must lie in \(0, inf\)"),
    "t some negative": (log_prob(t=[0.5, -0.5]), "got -0.5"),
    "t text": (log_prob(t="1"), "`t` must be an array of real numbers"),
    "t none": (log_prob(t=None), "`t` must be an array of real numbers"),
    "t a key": (log_prob(t=KEY), "`t` must be an array of real numbers"),
    "t beyond": (lambda: learned().log_prob([0.0], 2.0, [0.0]), "longer horizon"),
    "x0 NaN": (log_prob(x0=[NAN, 0.0]), "`x0` contains NaN"),
    "x0 infinite": (log_prob(x0=[INF, 0.0]), "`x0` must be finite"),
    "x0 too short": (log_prob(x0=[0.0]), "The last axis of `x0`"),
    "x0 numbers": (lambda: learned().log_prob([0.0], 0.5, [0.0, 0.1]), r"Write `x\[..., None\]`"),
    "x0 outside CIR": (lambda: CIR.log_prob([0.1], 0.5, [-0.1], RATES), r"domain \(0, inf\)"),
    "x0 outside GBM": (lambda: GBM.log_prob([0.1], 0.5, [0.0]), r"domain \(0, inf\)"),
    "x0 rare": (
        lambda: learned().log_prob([0.0], 0.5, [50.0], strict=True),
        "1 of 1 starts lie outside the law",
    ),
    "x and x0": (log_prob(x=np.zeros((3, 2)), x0=np.zeros((4, 2))), r"`x` \(3,\), `x0` \(4,\)"),
    "x and t": (log_prob(x=np.zeros((3, 2)), t=np.full(4, 0.5)), r"`t` \(4,\), `x` \(3,\)"),
    "score at infinity": (lambda: EXACT.score([INF, 0.0], 0.5, ZERO), "`x` must be finite"),
    "score shapes": (lambda: EXACT.score(np.zeros((3, 2)), [0.1, 0.2], ZERO), "must broadcast"),
    "start score": (lambda: EXACT.start_score(ZERO, 0.5, [0.0]), "The last axis of `x0`"),
    "prob": (lambda: EXACT.prob(ZERO, -0.5, ZERO), "`t` must lie in"),
    "params missing": (family(params=None), "depends on the parameters"),
    "params some": (family(params={"rate": 1.0}), "`level`, `noise` missing"),
    "params others": (family(params=PARAMS | {"b": 1.0}), "it has no `b`"),
    "params a list": (family(params=[1, 2, 3]), "must map names to numbers"),
    "params outside": (family(params=PARAMS | {"noise": -1.0}), r"must lie in \(0, inf\)"),
    "params NaN": (family(params=PARAMS | {"rate": NAN}), "`rate` must be finite"),
    "params text": (family(params=PARAMS | {"rate": "a"}), "`rate` must be an array"),
    "params shapes": (
        family(params=PARAMS | {"rate": [1.0, 2.0], "level": [1.0] * 3}),
        r"`rate` \(2,\), `level` \(3,\)",
    ),
    "params not asked": (log_prob(params=PARAMS), "has no parameters"),
    "start time missing": (season(), "depends on the time at which the process starts"),
    "start time NaN": (season(start_time=NAN), "`start_time` must be finite"),
    "start time text": (season(start_time="a"), "`start_time` must be an array"),
    "start time not asked": (log_prob(start_time=1.0), "holds only for starts at time 0"),
    "key a number": (sample(key=0.5), "`key` must be a seed or come from"),
    "key none": (sample(key=None), "`key` must be a seed or come from"),
    "key text": (sample(key="seed"), "`key` must be a seed or come from"),
    "keys": (sample(key=jr.split(KEY, 3)), "must be one key"),
    "key of floats": (sample(key=jnp.ones(2)), "array of dtype float"),
    "shape negative": (sample(shape=-1), "must not be negative"),
    "shape fraction": (sample(shape=1.5), "whole numbers"),
    "shape text": (sample(shape="3"), "whole numbers"),
    "shape none": (sample(shape=None), "whole numbers"),
    "shape nested": (sample(shape=[[1], [2]]), "whole numbers"),
    "sample shapes": (sample(t=[0.1, 0.2, 0.3], x0=np.zeros((2, 2))), "must broadcast"),
    "sample CIR": (
        lambda: CIR.sample(KEY, 0.5, [0.1], (), {"rate": 0.1, "level": 0.1, "noise": 1.0}),
        r"require 4 \* rate \* level > noise",
    ),
    "at time zero": (lambda: EXACT.at(0.0, ZERO), "point mass"),
    "at shapes": (lambda: EXACT.at([0.5, 0.6], np.zeros((3, 2))), "must broadcast"),
    "pdf": (lambda: at.pdf([1.0]), "The last axis of `x`"),
    "logpdf NaN": (lambda: at.logpdf([1.0, NAN]), "contains NaN"),
    "rvs size": (lambda: at.rvs(-2), "must not be negative"),
    "rvs state": (lambda: at.rvs(2, random_state="a"), "`random_state` must be"),
    "rvs state negative": (lambda: at.rvs(2, random_state=-1), "`random_state` must be"),
    "rvs key": (lambda: at.rvs(2, random_state=KEY), "`random_state` must be"),
    "coverage": (lambda: learned().coverage(ZERO), "The last axis of `x0`"),
    "coverage NaN": (lambda: learned().coverage([NAN]), "`x0` contains NaN"),
    "outside": (lambda: learned().outside([0.0, 0.1]), "The last axis of `x0`"),
    "outside exact": (lambda: EXACT.outside("a"), "array of real numbers"),
    "residual beyond": (lambda: learned().residual([0.0], 5.0, [0.0]), "`t` must lie in"),
    "residual at infinity": (lambda: learned().residual([INF], 0.5, [0.0]), "must be finite"),
    "samples": (lambda: learned().certificate(KEY, 0.5, [0.0], samples=1), "at least 2"),
    "samples text": (lambda: learned().certificate(KEY, 0.5, [0.0], "a"), "a whole number"),
    "certificate key": (
        lambda: learned().certificate(0.5, 0.5, [0.0]),
        "`key` must be a seed or come from",
    ),
    "certificate of none": (lambda: learned().certificate(KEY, [], [0.0]), "Give one time"),
    "certificate beyond": (lambda: learned().certificate(KEY, 5.0, [0.0]), "`t` must lie in"),
    "stages of one": (lambda: learned().stages([0.0], 0.5, [0.0]), "rows of `noise`"),
    "stages at times": (lambda: learned().stages([[0.0]], [0.5], [0.0]), "rows of `noise`"),
}

propagate = with_(df.propagate, density=FAMILY, law_or_draws=flat, t=0.5, params=PARAMS)
draws = with_(df.propagate, density=EXACT, law_or_draws=np.zeros((3, 2)), t=0.5)
bridge = with_(
    *(df.bridge,), key=KEY, density=EXACT, x0=ZERO, x1=[1.0, 1.0], t=1.0, steps=5, sde=PLANE.sde
)
observe = lambda x, y: -0.5 * (y - x[0]) ** 2
TIMES, STATES = [0.0, 0.5, 1.0], [[0.1], [0.2], [0.3]]


def filter(**changes):
    usual = {"key": KEY, "times": TIMES[1:], "observations": [0.1, 0.2], "observe": observe}
    usual |= {"particles": 5}
    return lambda: df.filter(**({"density": learned()} | usual | changes))


log_likelihood = with_(df.log_likelihood, density=FAMILY, times=TIMES, states=STATES, params=PARAMS)
estimate = with_(df.maximum_likelihood, density=FAMILY, times=TIMES, states=STATES, start=PARAMS)
USES = {
    "propagate at zero": (draws(t=0.0), "`t` must lie in"),
    "propagate at times": (draws(t=[0.5, 0.6]), "`t` must be one time"),
    "propagate at text": (draws(t="a"), "`t` must be an array"),
    "draws text": (draws(law_or_draws="a"), "array of real numbers"),
    "draws none": (draws(law_or_draws=None), "array of real numbers"),
    "draws too short": (draws(law_or_draws=[[0.0]]), r"shape \(n, 2\)"),
    "draws of none": (draws(law_or_draws=np.zeros((0, 2))), "with n > 0"),
    "draws NaN": (draws(law_or_draws=[[NAN, 0.0]]), "contains NaN"),
    "draws infinite": (draws(law_or_draws=[[INF, 0.0]]), "must be finite"),
    "law too long": (propagate(), "has 2 components; the problem has 1"),
    "count of draws": (propagate(law_or_draws=df.Normal(), draws=0), "at least 1"),
    "fraction of draws": (propagate(law_or_draws=df.Normal(), draws=1.5), "whole number"),
    "params missing": (propagate(params=None), "depends on the parameters"),
    "params a number": (propagate(params=3), "must map names"),
    "params several": (
        propagate(params=PARAMS | {"rate": [1.0, 2.0]}),
        "must be one number",
    ),
    "propagate no density": (propagate(density=None), "must be a transition density"),
    "propagate an SDE": (propagate(density=SDE), "Learn its density first"),
    "propagate a model": (propagate(density=PLANE), "Take its `exact` density"),
    "propagated point": (lambda: draws()().log_prob([0.0]), "The last axis of `x`"),
    "propagated key": (lambda: draws()().sample(0.5), "`key` must be a seed or come from"),
    "propagated shape": (lambda: draws()().sample(KEY, 1.5), "whole numbers"),
    "bridge key": (bridge(key=0.5), "`key` must be a seed or come from"),
    "bridge no density": (bridge(density=None), "must be a transition density"),
    "bridge a model": (bridge(density=PLANE), "Take its `exact` density"),
    "bridge x0 short": (bridge(x0=[0.0]), "must be one point of shape"),
    "bridge x0 several": (bridge(x0=[ZERO, ZERO]), "For several ends call"),
    "bridge x0 partial": (bridge(x0=[NAN, 0.0]), "For partial observations use"),
    "bridge x1 infinite": (bridge(x1=[INF, 0.0]), "`x1` must be finite"),
    "bridge x1 none": (bridge(x1=None), "array of real numbers"),
    "bridge steps": (bridge(steps=1), "`steps` must be at least 2"),
    "bridge fraction": (bridge(steps=2.5), "`steps` must be a whole number"),
    "bridge paths": (bridge(paths=0), "`paths` must be at least 1"),
    "bridge paths none": (bridge(paths=None), "`paths` must be a whole number"),
    "bridge no SDE": (bridge(sde=None), "does not know its SDE"),
    "bridge SDE": (bridge(sde=PLANE), "must be a `diracflow.SDE`"),
    "bridge other SDE": (bridge(sde=SDE), "must have 2 components"),
    "bridge local": (bridge(local="euler"), "`local` must be a transition density"),
    "bridge other local": (bridge(local=FAMILY), "`local` must have 2 components"),
    "bridge params": (bridge(params=PARAMS), "has no parameters"),
    "bridge start": (bridge(start_time="a"), "`start_time` must be one finite number"),
    "bridge at zero": (bridge(t=0.0), "`t` must lie in"),
    "bridge at times": (bridge(t=[1.0]), "`t` must be one time"),
    "filter key": (filter(key=0.5), "`key` must be a seed or come from"),
    "filter no density": (filter(density=None), "must be a transition density"),
    "filter times fall": (filter(times=[1.0, 0.5]), "`times` must increase"),
    "filter no times": (filter(times=[]), "one time or more"),
    "filter time": (filter(times=1.0), "one time or more"),
    "filter times text": (filter(times="a"), "`times` must be an array"),
    "filter times NaN": (filter(times=[NAN, 1.0]), "`times` must be finite"),
    "filter too early": (filter(times=[-1.0, 1.0]), "lies before the start"),
    "filter observations": (filter(observations=[0.1]), "one entry for each of the 2"),
    "filter ragged": (filter(observations=[[0.1], [0.1, 0.2]]), "`observations` must be"),
    "filter infinite": (filter(observations=[INF, 0.1]), "`observations` must be finite"),
    "filter observe none": (filter(observe=None), TRACED),
    "filter observe one": (filter(observe=lambda x: x), TRACED),
    "filter observe vector": (filter(observe=lambda x, y: x), "must return one number"),
    "filter observe complex": (filter(observe=lambda x, y: 1j), "must return a real number"),
    "filter particles": (filter(particles=0), "`particles` must be at least 1"),
    "filter fraction": (filter(particles=1.5), "`particles` must be a whole number"),
    "filter initial": (filter(initial="a"), "`initial` must be an array"),
    "filter initial long": (filter(initial=ZERO), "`initial` must be a law"),
    "filter initial NaN": (filter(initial=[NAN]), "`initial` must be finite"),
    "filter initial law": (filter(initial=flat), "has 2 components"),
    "filter no initial": (filter(density=GBM), "pass `initial`"),
    "filter outside": (filter(density=GBM, initial=[-1.0]), r"domain \(0, inf\)"),
    "filter start late": (filter(start=5.0), "lies before the start"),
    "filter start NaN": (filter(start=NAN), "`start` must be one finite number"),
    "filter starts": (filter(start=[0.0, 1.0]), "`start` must be one finite number"),
    "filter levels": (filter(quantiles=[1.5]), "levels between 0 and 1"),
    "filter levels text": (filter(quantiles="a"), "`quantiles` must be an array"),
    "filter history": (filter(history="yes"), "`history` must be True or False"),
    "filter params": (filter(params=PARAMS), "has no parameters"),
    "path no density": (log_likelihood(density=None), "must be a transition density"),
    "path model": (log_likelihood(density=PLANE), "Take its `exact` density"),
    "path times equal": (log_likelihood(times=[0.0, 0.0, 1.0]), "1 gaps are zero"),
    "path times fall": (log_likelihood(times=[1.0, 0.5, 0.0]), "2 negative"),
    "path times few": (log_likelihood(times=[0.0, 1.0]), "one entry for each"),
    "path times NaN": (log_likelihood(times=[0.0, NAN, 1.0]), "`times` must be finite"),
    "path times text": (log_likelihood(times="a"), "`times` must be an array"),
    "path states wide": (log_likelihood(states=np.zeros((3, 2))), r"\(..., times, 1\)"),
    "path states infinite": (log_likelihood(states=[[0.0], [INF], [0.1]]), "must be finite"),
    "path states missing": (log_likelihood(states=[[NAN]] * 3), "at least two observed"),
    "path states none": (log_likelihood(states=np.zeros((0, 3, 1))), "at least two observed"),
    "path of one": (log_likelihood(times=[0.0], states=[[0.0]]), "at least two observed"),
    "paths and times": (
        log_likelihood(times=np.tile(TIMES, (2, 1)), states=np.zeros((3, 3, 1))),
        r"`times` \(2,\), `states` \(3,\)",
    ),
    "path partial": (
        lambda: df.log_likelihood(EXACT, [0.0, 1.0], [ZERO, [NAN, 0.0]]),
        "some components NaN",
    ),
    "path gaps": (lambda: df.log_likelihood(learned(), [0.0, 5.0], STATES[:2]), "longer than"),
    "path outside": (
        lambda: df.log_likelihood(CIR, TIMES, [[0.1], [-0.2], [0.3]], RATES),
        r"domain \(0, inf\)",
    ),
    "path params": (log_likelihood(params=None), "depends on the parameters"),
    "path params each": (log_likelihood(params=PARAMS | {"rate": [1.0, 2.0]}), "one for each path"),
    "estimate none": (estimate(density=EXACT), "has no parameters to estimate"),
    "estimate no density": (estimate(density=None), "must be a transition density"),
    "estimate some": (estimate(start={"rate": 1.0}), "missing. Pass all"),
    "estimate outside": (estimate(start=PARAMS | {"noise": -1.0}), r"must lie in \(0, inf\)"),
    "estimate several": (estimate(start=PARAMS | {"rate": [1.0, 2.0]}), "one finite number"),
    "estimate a list": (estimate(start=[1, 2, 3]), "must map names"),
    "bounds others": (estimate(bounds={"b": (0, 1)}), "it has no `b`"),
    "bounds elsewhere": (estimate(bounds={"rate": (2, 3)}), "start inside the bounds"),
    "bounds a number": (estimate(bounds={"rate": 3}), "Bounds are pairs"),
    "bounds of three": (estimate(bounds={"rate": (0, 1, 2)}), "Bounds are pairs"),
    "bounds NaN": (estimate(bounds={"rate": (0, NAN)}), "Bounds are pairs"),
    "bounds text": (estimate(bounds={"rate": ("a", "b")}), "array of real numbers"),
    "bounds a list": (estimate(bounds=[1]), "`bounds` must map names"),
    "iterations": (estimate(max_iterations=0), "`max_iterations` must be at least 1"),
    "iterations fraction": (estimate(max_iterations=1.5), "must be a whole number"),
}

PRIOR = {"rate": df.LogNormal(0, 0.5), "level": df.Normal(), "noise": df.LogNormal(0, 0.5)}
infer = with_(
    *(df.infer,), key=KEY, density=FAMILY, times=TIMES, states=STATES, prior=PRIOR, chains=1
)


def law(**changes):
    return lambda: df.numpyro.Transition(**({"density": EXACT, "t": 0.5, "x0": ZERO} | changes))


NUMPYRO = {
    "key": (infer(key=0.5), "`key` must be a seed or come from"),
    "density": (infer(density=None), "must be a transition density"),
    "no parameters": (infer(density=EXACT), "no parameters to infer"),
    "prior none": (infer(prior=None), "must map names"),
    "prior some": (infer(prior={}), "missing. Pass all"),
    "prior others": (infer(prior=PRIOR | {"b": df.Normal()}), "it has no `b`"),
    "prior a number": (infer(prior=PRIOR | {"rate": 1.0}), "must be a law of one number"),
    "prior of two": (infer(prior=PRIOR | {"rate": flat}), "must be a law of one number"),
    "prior mixture": (
        infer(prior=PRIOR | {"rate": df.Mixture([df.Normal()])}),
        "law of one number: a `Normal`",
    ),
    "prior outside": (infer(prior=PRIOR | {"noise": df.Normal()}), "of the prior of `noise`"),
    "chains": (infer(chains=0), "`chains` must be at least 1"),
    "chains fraction": (infer(chains=1.5), "`chains` must be a whole number"),
    "draws": (infer(draws=None), "`draws` must be a whole number"),
    "warmup": (infer(warmup=0), "`warmup` must be at least 1"),
    "times": (infer(times=[0.0]), "one entry for each"),
    "states": (infer(states="a"), "`states` must be an array"),
    "law no density": (law(density=None), "must be a transition density"),
    "law at zero": (law(t=0.0), "point mass"),
    "law x0": (law(x0=[0.0]), "The last axis of `x0`"),
    "law shapes": (law(t=[0.1, 0.2, 0.3], x0=np.zeros((2, 2))), "must broadcast"),
    "law params": (law(params=PARAMS), "has no parameters"),
    "law point": (lambda: law()().log_prob([0.0]), "The last axis of `value`"),
    "law key": (lambda: law()().sample(0.5), "`key` must be a seed or come from"),
    "law shape": (lambda: law()().sample(KEY, (-3,)), "must not be negative"),
}

WRONG_MODELS = {
    "brownian": [{"dim": 0}, {"dim": 1.5}, {"dim": "a"}, {"dim": None}],
    "ornstein_uhlenbeck": [
        *({"dim": -1}, {"rate": [1.0, 2.0, 3.0]}, {"rate": "a"}, {"noise": NAN}),
        *({"noise": 0.0}, {"rate": np.ones((2, 3))}, {"level": [1.0] * 3}),
    ],
    "benes": [{"dim": 0}, {"dim": 2.5}, {"angle": NAN}, {"angle": "a"}],
    "sheared": [{"dim": 3}, {"dim": 0}, {"shear": NAN}, {"seed": -1}, {"seed": "a"}],
    "seasonal": [{"rate": -1.0}, {"noise": "a"}, {"level": INF}],
    "cir": [{"rate": -1.0}, {"level": "a"}, {"noise": None}, {"rate": [1.0, 2.0]}],
    "geometric_brownian": [{"noise": 0.0}, {"rate": NAN}, {"rate": "a"}],
    "ckls": [{"exponent": -1.0}],
    "jacobi": [{"level": 2.0}],
    "heston": [{"correlation": 1.5}, {"drift": NAN}, {"correlation": "a"}],
    "lotka_volterra": [{"birth": 0.0}],
    "linear_langevin": [{"noise": 0.0}, {"stiffness": NAN}],
    "langevin": [{"friction": "a"}],
    "duffing": [{"cubic": INF}],
    "van_der_pol": [{"mu": "a"}],
    "double_well_chain": [{"dim": 0}, {"height": 0.0}, {"coupling": -1.0}, {"noise": -1.0}],
    "double_well": [{"dim": 3}],
}
MODELS = {
    f"{name} {argument}": (with_(getattr(df.models, name))(**argument), f"`{next(iter(argument))}`")
    for name, arguments in WRONG_MODELS.items()
    for argument in arguments
} | {
    "no name": (lambda: df.models.model(None), "No built-in model is called None"),
    "unknown": (lambda: df.models.model("lorenz"), "there are benes, brownian"),
    "argument": (lambda: df.models.model("benes", angel=1.0), "no argument 'angel'; it has angle"),
}

errors = with_(df.errors, density=EXACT, exact=EXACT, t=[0.5], x0=[ZERO])
SPECTRAL = {"low": [-1.0], "high": [1.0], "points": 5}
grid = with_(df.evaluate.SpectralGrid, **SPECTRAL)
JUDGED = {
    "density": (errors(density=None), "`density` must be a transition density"),
    "exact": (errors(exact=PLANE), "`exact` must be a transition density"),
    "dimensions": (errors(exact=FAMILY), "has 2 components and `exact` 1"),
    "no time": (errors(t=[]), "at least one of each"),
    "times square": (errors(t=[[0.5]]), "must be a list of times"),
    "time text": (errors(t="a"), "`t` must be an array"),
    "time zero": (errors(t=0.0), "point mass"),
    "no start": (errors(x0=np.zeros((0, 2))), "at least one of each"),
    "starts deep": (errors(x0=np.zeros((1, 1, 2))), "must be a list of times"),
    "start short": (errors(x0=[0.0]), "The last axis of `x0`"),
    "key": (errors(key=0.5), "`key` must be a seed or come from"),
    "samples": (errors(samples=1), "`samples` must be at least 2"),
    "grid": (errors(grid=1), "`grid` must be at least 3"),
    "grid text": (errors(grid="a"), "`grid` must be a whole number"),
    "params": (errors(params=PARAMS), "has no parameters"),
    "study starts": (
        lambda: df.evaluate.study(learned(), FAMILY, key=KEY, starts=0),
        "`starts` must be at least 1",
    ),
    "study key": (
        lambda: df.evaluate.study(learned(), FAMILY, key=0.5),
        "`key` must be a seed or come from",
    ),
    "even grid": (grid(points=4), "`points` must be odd"),
    "grid of none": (grid(points=-1), "`points` must be at least 3"),
    "grid turned": (grid(low=[2.0]), "opposite corners"),
    "grid of two": (grid(low=ZERO), "opposite corners"),
    "marginals": (lambda: df.evaluate.marginals(FAMILY, 0.5, [0.0]), "must have two components"),
    "heston start": (
        lambda: df.evaluate.HestonMarginals().mean(0.5, [0.0, -0.1]),
        "a positive variance",
    ),
    "load an SDE": (lambda: df.load("a.dflow", sde=PLANE), "must be a `diracflow.SDE`"),
}


def view(name, *arguments, **keywords):
    return lambda: getattr(df.view, name)(*arguments, **keywords)


VIEWS = {
    "joint of none": (view("joint", None, EXACT, 0.5, [ZERO]), "must be a transition density"),
    "joint of one": (view("joint", FAMILY, FAMILY, 0.5, [ZERO]), "states with 2 components"),
    "joint from nowhere": (view("joint", EXACT, EXACT, 0.5, np.zeros((0, 2))), "one start or more"),
    "joint at zero": (view("joint", EXACT, EXACT, 0.0, [ZERO]), "point mass"),
    "section of two": (view("section", EXACT, EXACT, 0.5, ZERO), "more than two components"),
    "conditional": (view("conditional", EXACT, EXACT, ZERO, NAN), "`horizon` must be one finite"),
    "moulding": (view("moulding", EXACT, 0.5, ZERO, [ZERO]), "must come from `diracflow.learn`"),
    "lines of two": (view("lines", EXACT, None, [0.5], ZERO), "states with 1 components"),
    "lines never": (view("lines", GBM, None, [], [1.0]), "at least one time"),
    "lines in words": (view("lines", GBM, None, "now", [1.0]), "one finite number"),
    "planes from several": (view("planes", EXACT, [0.5], [ZERO]), "must be one point"),
    "error of none": (view("error_over_time", None), "must come from `diracflow.evaluate.study`"),
    "history of exact": (view("training_history", EXACT), "must come from `diracflow.learn`"),
    "posterior of none": (view("posterior_pairs", None), "must come from `diracflow.infer`"),
    "propagated": (view("propagated", flat, KEY), "must come from `diracflow.propagate`"),
    "fan": (view("bridge_fan", None), "must come from `diracflow.bridge`"),
    "forecast": (view("forecast_fan", None), "must come from `diracflow.forecast`"),
    "bands": (view("filter_bands", None), "must come from `diracflow.filter`"),
}

TABLES = {
    "view": VIEWS,
    "sde": SDES,
    "laws": LAWS,
    "learn": LEARN,
    "settings": SETTINGS,
    "queries": QUERIES,
    "uses": USES,
    "models": MODELS,
    "judged": JUDGED,
}
CASES = {f"{t}: {name}": case for t, table in TABLES.items() for name, case in table.items()}


@pytest.mark.parametrize("call, message", CASES.values(), ids=CASES)
def test_bad_input_is_refused_at_once(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call, message", NUMPYRO.values(), ids=NUMPYRO)
def test_bad_input_of_inference_is_refused_at_once(call, message):
    pytest.importorskip("numpyro")
    with pytest.raises(ValueError, match=message):
        call()


def test_tables_are_long_enough():
    assert len(CASES) + len(NUMPYRO) >= 150


def test_values_known_only_when_traced_are_refused_when_run():
    with pytest.raises(Exception, match="must lie in"):
        jax.block_until_ready(jax.jit(lambda t: EXACT.log_prob(ZERO, t, ZERO))(-1.0))
