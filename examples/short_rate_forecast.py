"""The three-month Treasury bill rate: forecasts of CIR scored against a random walk.

CIR is fitted to the quarters from 1959 to 1981 by maximum likelihood; those up to 2008, when the
rate was held at zero, are held out. One random walk has steps of constant deviation; in the other
it grows with the square root of the rate, as in CIR, so that only the reversion is compared.

Run: python examples/short_rate_forecast.py --figure rate.png    (needs the extra `series`)
"""

import argparse
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm
from statsmodels.datasets import macrodata

import diracflow as df

QUARTER, YEARS = 0.25, 5.0
GUESS = {"rate": 0.3, "level": 0.05, "noise": 0.07}


def main(figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    table = macrodata.load_pandas().data
    years = (table["year"] + (table["quarter"] - 1) / 4).to_numpy()
    x = table["tbilrate"].to_numpy() / 100
    # The density of CIR is known. One that is not, such as that of CKLS, would be learned first.
    density, seen, old = df.ExactCIR(), years < 2008.5, years < 1982
    fit = df.maximum_likelihood(density, years[old], x[old, None], GUESS)
    print("parameters", fit.params, "standard errors", fit.standard_errors)

    check = df.evaluate.path_check(density, years[seen], x[seen, None], fit.params)
    late, steps, before = check.times >= 1982, np.diff(x[seen]), x[seen][:-1]
    scores = {}
    for name, size in {"constant": np.ones_like(before), "square root": np.sqrt(before)}.items():
        deviation = np.std((steps / size)[~late]) * size
        walk = norm.logpdf(steps, 0.0, deviation)[late]
        scores[name] = found = df.evaluate.compare(check.log_scores[late], walk)
        print(
            f"CIR against a random walk, {name} noise: {check.log_scores[late].mean():.3f} and "
            f"{walk.mean():.3f} a quarter, difference {found.difference:.1f} ± {found.stderr:.1f}"
        )
    for name, part in {"fitted": check, "held out": check.after(1981.9)}.items():
        for test, result in part.tests().items():
            print(f"{name}, {test}: p = {result.p[0]:.2g}")
    # The fan from the start of the held-out years, over five years.
    ahead = 1982 + np.arange(0.0, YEARS, QUARTER)
    start = {"start": float(years[old][-1]), "params": fit.params}
    fan = df.forecast(0, density, x[old][-1], ahead, **start)
    if figure is not None:
        axes = Figure(figsize=(8, 3), layout="constrained").subplots()
        axes.plot(years[seen], x[seen], color="black", linewidth=0.8)
        fan.plot(axes).figure.savefig(figure, dpi=130)
        check.plot().figure.savefig(figure.with_stem(f"{figure.stem}_check"))
    return fit, scores, check, fan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(figure=parser.parse_args().figure)
