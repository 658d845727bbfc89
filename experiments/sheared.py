"""The paper's sheared Brownian motion in six dimensions, with the paper's flow.

Draws the (x1, x2) section of the density at t = 1, its absolute error, and the mean error over
time with a 95 % bootstrap interval over 1000 starts, into `runs/sheared_paper`.

Run: python experiments/sheared.py [--masks fixed|permuted]

By default the components are split the same way in all layers, as the paper prints it; the first
then acts on the second only by way of the components on the other side. With `--masks permuted`
every pair of layers splits them differently.
"""

import argparse
from pathlib import Path

from diracflow.cli.run_command import run_model

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masks", choices=("fixed", "permuted"), default="fixed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    changes = {"masks": options.masks}
    folder = "sheared_paper" if options.masks == "fixed" else "sheared_permuted"
    run_model("sheared", "paper", Path("runs") / folder, options.seed, 1000, changes)
