"""The paper's Beneš experiment, with the paper's flow.

Draws the paper's figures (joint density at t = 3 for two starts, the flow moulding samples layer by
layer, the conditional density over time, the mixture start) and the error over time, into
`runs/benes_paper`.

Run: python experiments/benes.py [--seed 0]
"""

import argparse
from pathlib import Path

import numpy as np

import diracflow as df
from diracflow.cli.run_command import mixture_draws, run_model


def mixture_error(folder: Path) -> float:
    """Relative squared L2 error of the mixture start at t = 3, both sides with the same draws."""
    density, exact = df.load(folder / "model.dflow"), df.models.benes().exact
    draws = mixture_draws(1750)
    axis = np.linspace(-14, 14, 65)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    learned, true = (np.asarray(df.propagate(d, draws, 3.0).prob(x)) for d in (density, exact))
    return float(np.sum((learned - true) ** 2) / np.sum(true**2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/benes_paper"))
    options = parser.parse_args()
    run_model("benes", "paper", options.out, options.seed, 64, {})
    print(f"mixture start, 1750 draws: rel. sq. L2 {mixture_error(options.out):.2e}")
