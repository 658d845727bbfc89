"""A real short rate: CIR and CKLS on learned densities, and calibration of their predictions."""

from collections.abc import Mapping
from typing import Any

import jax.random as jr
import numpy as np
from scipy.stats import chi2, kstest, norm

import diracflow as df
from rate_densities import Problem

QUARTER = 0.25
# Noise of CKLS is stated at this rate, so that a box of it means the same for every exponent.
REFERENCE = 0.05
LAGS = 8  # two years


def ckls_sde() -> df.SDE:
    """dX = rate (level - X) dt + noise (X / 5 %)^exponent dW."""
    return df.SDE(
        drift=lambda t, x, p: p["rate"] * (p["level"] - x),
        diffusion=lambda t, x, p: p["noise"] * (x[:, None] / REFERENCE) ** p["exponent"],
        dim=1,
        params=("rate", "level", "noise", "exponent"),
        domain=df.Positive(),
    )


# Rates as decimals, time in years. Starts hold the series down to half a per cent, four deviations
# below their middle. In corners of the boxes zero can be reached, where the test that `learn` makes
# at some draws may not look; from where the series is, paths hardly get there within a quarter.
_STARTS = df.LogNormal(np.log(0.05), 0.6)
SERIES_PROBLEMS = {
    "cir": Problem(
        "treasury_cir",
        df.models.cir_family().sde,
        _STARTS,
        QUARTER,
        {
            "rate": df.Uniform(0.02, 0.6),
            "level": df.Uniform(0.02, 0.1),
            "noise": df.Uniform(0.045, 0.09),
        },
    ),
    "ckls": Problem(
        "treasury_ckls",
        ckls_sde(),
        _STARTS,
        QUARTER,
        {
            "rate": df.Uniform(0.02, 0.6),
            "level": df.Uniform(0.02, 0.1),
            "noise": df.Uniform(0.009, 0.024),
            "exponent": df.Uniform(0.5, 1.5),
        },
    ),
}
SEARCH_FROM = {
    "cir": {"rate": 0.3, "level": 0.05, "noise": 0.07},
    "ckls": {"rate": 0.3, "level": 0.05, "noise": 0.015, "exponent": 0.75},
}


def treasury_bills(floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Quarters, and the three-month rate as a decimal, up to where it first falls below `floor`.

    At the end of 2008 the rate fell to 0.12 %, where it was held: no diffusion with constant
    parameters moves like that, and no density learned for the rest of the series covers it.
    """
    try:
        from statsmodels.datasets import macrodata
    except ImportError as error:
        raise ImportError(
            "The series comes with the package `statsmodels`; `pip install statsmodels`. Nothing "
            "is downloaded. `simulated` does without."
        ) from error
    table = macrodata.load_pandas().data
    dates = (table["year"] + (table["quarter"] - 1) / 4).to_numpy()
    return above(floor, dates, table["tbilrate"].to_numpy() / 100)


def above(floor: float, dates: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both up to the first rate below a floor."""
    below = np.flatnonzero(rates < floor)
    end = below[0] if len(below) else len(rates)
    if end < 3:
        raise ValueError(f"Of the series only {end} rates come before one below {floor}.")
    return dates[:end], rates[:end]


def fitted(
    density: df.AbstractTransitionDensity, rates: np.ndarray, start: Mapping[str, float]
) -> dict[str, Any]:
    """Parameters of greatest likelihood, in plain Python."""
    times = QUARTER * np.arange(len(rates))
    found = df.maximum_likelihood(density, times, rates[:, None], start)
    return {
        "params": found.params,
        "standard_errors": found.standard_errors,
        "log_likelihood": found.log_likelihood,
        "converged": found.converged,
        "message": found.message,
    }


def probability_transforms(
    density: df.AbstractTransitionDensity,
    rates: np.ndarray,
    params: Mapping[str, float],
    grid: int = 513,
) -> np.ndarray:
    """The distribution function of each one-step prediction at the rate that came.

    Trapezoidal sums over the logarithm of the rate, over all of the predicted mass.
    """
    before, after = rates[:-1, None], rates[1:]
    draws = np.log(np.asarray(density.sample(jr.key(0), QUARTER, before, (512,), params)))[..., 0]
    low, high = draws.min(axis=0), draws.max(axis=0)
    # Draws reach three deviations; two thirds of their range more on each side reach seven.
    low, high = low - 2 / 3 * (high - low), high + 2 / 3 * (high - low)
    u = np.linspace(low, high, grid)
    # One start at a time: what depends on it alone is then computed once for all points.
    columns = zip(np.exp(u).T[..., None], before, strict=True)
    values = [np.asarray(density.prob(x, QUARTER, x0, params)) for x, x0 in columns]
    p = np.stack(values, axis=1) * np.exp(u)
    steps = (p[1:] + p[:-1]) / 2 * np.diff(u, axis=0)
    cdf = np.concatenate([np.zeros((1, len(after))), np.cumsum(steps, axis=0)])
    if np.max(np.abs(cdf[-1] - 1)) > 1e-2:
        raise ValueError(f"A prediction has mass {cdf[-1][np.argmax(np.abs(cdf[-1] - 1))]:.3g}.")
    columns = zip(np.log(after), u.T, cdf.T, strict=True)
    return np.array([np.interp(value, *column) for value, *column in columns])


def ljung_box(values: np.ndarray, lags: int = LAGS) -> dict[str, float]:
    """Ljung and Box's statistic of autocorrelations up to a lag, and its p-value."""
    centred, n = values - values.mean(), len(values)
    if n <= lags + 1:
        raise ValueError(f"{lags} lags need more than {lags + 1} values; got {n}.")
    lag = np.arange(1, lags + 1)
    correlations = np.array([centred[k:] @ centred[:-k] for k in lag]) / (centred @ centred)
    statistic = float(n * (n + 2) * np.sum(correlations**2 / (n - lag)))
    return {"statistic": statistic, "p": float(chi2.sf(statistic, lags))}


def calibration(transforms: np.ndarray) -> dict[str, Any]:
    """Are the transforms uniform and independent?

    Parameters were fitted to the same data, which makes the first p-value too large.
    """
    uniform = kstest(transforms, "uniform")
    normal = norm.ppf(np.clip(transforms, 1e-12, 1 - 1e-12))
    return {
        "kolmogorov_smirnov": {"statistic": float(uniform.statistic), "p": float(uniform.pvalue)},
        "ljung_box": ljung_box(normal),
        "ljung_box_of_squares": ljung_box(normal**2),
    }


def series_study(
    densities: Mapping[str, df.TransitionDensity], rates: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fits and calibration, with CIR's exact density beside; and the transforms."""
    candidates = {**densities, "cir exact": df.ExactCIR()}
    rows, transforms = {}, {}
    for name, density in candidates.items():
        fit = fitted(density, rates, SEARCH_FROM[name.split()[0]])
        transforms[name] = probability_transforms(density, rates, fit["params"])
        rows[name] = {**fit, "calibration": calibration(transforms[name])}
        outside = density.outside(rates[:-1, None], fit["params"])
        rows[name]["starts_outside"] = int(np.sum(outside))
    ratio = 2 * (rows["ckls"]["log_likelihood"] - rows["cir"]["log_likelihood"])
    # CIR is CKLS with the exponent one half.
    test = {"statistic": ratio, "p": float(chi2.sf(max(ratio, 0.0), 1))}
    found = {"transitions": len(rates) - 1, "fits": rows, "ckls_against_cir": test}
    return found, transforms
