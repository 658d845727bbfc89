"""A real short rate: CIR and CKLS on learned densities, and calibration of their predictions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import chi2

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


def series_study(
    densities: Mapping[str, df.TransitionDensity], rates: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fits and calibration, with CIR's exact density beside; and the transforms."""
    candidates = {**densities, "cir exact": df.ExactCIR()}
    rows, transforms = {}, {}
    for name, density in candidates.items():
        fit = fitted(density, rates, SEARCH_FROM[name.split()[0]])
        times = QUARTER * np.arange(len(rates))
        check = df.evaluate.path_check(density, times, rates[:, None], fit["params"])
        # Parameters were fitted to the same data, which makes p-values too large.
        transforms[name], tests = check.transforms[:, 0], check.tests(LAGS)
        calibration = {
            test: {"statistic": float(found.statistic[0]), "p": float(found.p[0])}
            for test, found in tests.items()
        }
        rows[name] = {**fit, "calibration": calibration}
        outside = density.outside(rates[:-1, None], fit["params"])
        rows[name]["starts_outside"] = int(np.sum(outside))
    ratio = 2 * (rows["ckls"]["log_likelihood"] - rows["cir"]["log_likelihood"])
    # CIR is CKLS with the exponent one half.
    test = {"statistic": ratio, "p": float(chi2.sf(max(ratio, 0.0), 1))}
    found = {"transitions": len(rates) - 1, "fits": rows, "ckls_against_cir": test}
    return found, transforms
