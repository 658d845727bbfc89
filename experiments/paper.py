"""Draw the paper's figures, and write them and the table of errors into `docs/paper.md`.

Learned densities are kept in `runs/paper` and read from there the next time. The preset `paper` has
the paper's flow and settings; `quick` and `accurate` are ours.

Run: python experiments/paper.py --preset paper --starts 1000
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.errors import Study
from diracflow.view.axes import box_around, plane

ROOT = Path(__file__).parents[1]
FIGURES, KEPT = ROOT / "docs" / "images" / "paper", ROOT / "runs" / "paper"
PAGE, BEGIN, END = ROOT / "docs" / "paper.md", "<!-- results -->\n", "<!-- end of results -->"
CAPTIONS = {
    "joint": "Figure 1: joint density of Beneš at t = 3, exact, learned and difference",
    "moulding": "Figure 2: samples of the source after each layer",
    "conditional": "Figure 3: density of the first component given the second, over time",
    "benes_error": "Figure 3: error of Beneš over time",
    "mixture": "Figure 4: Beneš from the mixture; exact by quadrature, learned by 1750 draws",
    "section": "Figure 5: section of the sheared process at t = 1",
    "sheared_error": "Figure 5: error of the sheared process over time",
}
# The paper's equation (24): weight, centre of both components, and width of each Gaussian.
MIXTURE = ((0.25, 1.0, 0.1), (0.75, -0.75, 0.5))


def learned(model: df.models.Model, preset: str, seed: int, **changes) -> df.TransitionDensity:
    """Return the density of a model, learned now or before."""
    tags = [model.name, preset, str(seed), *changes.values()]
    path = KEPT / f"{'-'.join(tags)}.dflow"
    if not path.exists():
        options = {"preset": preset, "key": seed, "progress": True, **changes}
        df.learn(model.sde, model.starts, model.horizon, **options).save(path)
    return df.load(path)


def from_mixture(density: df.AbstractTransitionDensity, x: np.ndarray, t: float) -> np.ndarray:
    """Return the density at `x` from the mixture, by Gauss-Hermite rules of 16 x 16 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    pairs = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    product = np.outer(weights, weights) / (2 * np.pi)
    total = np.zeros(x.shape[:-1])
    for share, centre, width in MIXTURE:
        starts = (centre + width * pairs)[:, :, None, None]
        total += share * np.einsum("ij,ijkl->kl", product, density.prob(x, t, starts))
    return total


def squared_l2(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.sum((found - true) ** 2) / np.sum(true**2))


def mixture_errors(density: df.TransitionDensity, exact: df.AbstractTransitionDensity) -> dict:
    """Return errors of the mixture start at t = 3, by 1750 draws and by quadrature."""
    laws = [df.Normal([centre] * 2, width) for _, centre, width in MIXTURE]
    draws = df.Mixture(laws, [share for share, *_ in MIXTURE]).sample(jr.key(5), (1750,))
    cloud = np.asarray(df.propagate(exact, draws, 3.0).sample(jr.key(2), (2000,)))
    x = plane(box_around(cloud), 49)
    drawn, common = (np.asarray(df.propagate(d, draws, 3.0).prob(x)) for d in (density, exact))
    true, ruled = (from_mixture(d, x, 3.0) for d in (exact, density))
    rows = [("mixture start, t = 3", box_around(cloud), lambda _: true, lambda _: drawn)]
    df.view.comparison(rows, grid=49).savefig(FIGURES / "mixture.png", dpi=90)
    return {
        "Beneš from the mixture by 1750 draws, against quadrature": squared_l2(drawn, true),
        "the same against the exact density by the same draws": squared_l2(drawn, common),
        "the exact density by 1750 draws, against quadrature": squared_l2(common, true),
        "Beneš from the mixture, both sides by quadrature": squared_l2(ruled, true),
    }


def benes_figures(density: df.TransitionDensity, exact, found: Study) -> None:
    centre, noise = np.zeros(2), np.asarray(jr.normal(jr.key(0), (3000, 2)))
    starts = np.array([[0.0, 0.0], [1.5, -1.0]])
    makers = {
        "joint": partial(df.view.joint, density, exact, 3.0, starts),
        "moulding": partial(df.view.moulding, density, density.reach, centre, noise),
        "conditional": partial(df.view.conditional, density, exact, centre, 3.0),
        "benes_error": partial(df.view.error_over_time, found),
    }
    for name, make in makers.items():
        make().savefig(FIGURES / f"{name}.png", dpi=90)


def sheared_figures(density: df.TransitionDensity, exact, found: Study) -> None:
    df.view.section(density, exact, 1.0, np.zeros(6)).savefig(FIGURES / "section.png", dpi=90)
    df.view.error_over_time(found).savefig(FIGURES / "sheared_error.png", dpi=90)


def table(errors: dict[str, float], options: argparse.Namespace) -> str:
    rows = [f"| {name} | {value:.1e} |" for name, value in errors.items()]
    command = f"`python experiments/paper.py --preset {options.preset} --starts {options.starts}`"
    head = f"Preset `{options.preset}`, seed {options.seed}: {command}, diracflow {df.__version__}."
    pictures = [line for name, text in CAPTIONS.items() for line in ("", _picture(name, text))]
    lines = [head, "", "| what | relative squared L2 error |", "|---|---|", *rows, *pictures]
    return "\n".join([*lines, ""])


def _picture(name: str, text: str) -> str:
    return f"![{text}](images/paper/{name}.png)\n\n*{text}.*"


def main(options: argparse.Namespace) -> None:
    jax.config.update("jax_enable_x64", True)
    # The outermost nodes of the quadrature lie outside, with a weight of 1e-5 in all.
    warnings.simplefilter("ignore", df.OutsideWarning)
    for folder in (FIGURES, KEPT):
        folder.mkdir(parents=True, exist_ok=True)
    errors, began = {}, time.monotonic()
    draws = {"benes": benes_figures, "sheared": sheared_figures}
    for name, draw in draws.items():
        model = df.models.MODELS[name]()
        changes = {"masks": options.masks} if options.masks else {}
        density = learned(model, options.preset, options.seed, **changes)
        count = options.starts if name == "sheared" else min(options.starts, 64)
        found = df.evaluate.study(density, model.exact, key=jr.key(1), starts=count)
        draw(density, model.exact, found)
        rows = found.summary()
        for row in (rows[0], max(rows, key=lambda row: row["squared_l2"]), rows[-1]):
            what = f"{name}, {count} starts, t = {row['t']:.2g}"
            errors[what] = row["squared_l2"]
            errors[f"{what}, source alone"] = row["source_squared_l2"]
        if name == "benes":
            errors |= mixture_errors(density, model.exact)
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + table(errors, options) + END + after, "utf-8")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", choices=("fixed", "permuted"))
    main(parser.parse_args())
