"""Does any file, however mutated, crash `diracflow.load`, load in silence, or take much memory?

Run: python benchmarks/fuzz_files.py 12000 --seed 0
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import diracflow as df
from diracflow.density.finite_check import _values, _without_provenance
from file_mutations import ACCIDENTS, foreign, forged, unpacked
from helpers import stepped_density


def goods():
    """Densities whose files are mutated, by name."""
    mixture = df.Mixture([df.Normal([1.0, 1.0], 0.5), df.Uniform([-1.0, -1.0], [1.0, 1.0])])
    plane = eqx.tree_at(lambda m: m.starts, df.models.benes(), mixture)
    return {
        "benes": stepped_density(df.models.benes(), source="euler"),
        "mixture": stepped_density(plane, source="euler"),
        "affine": stepped_density(df.models.benes(), flow="affine", masks="fixed", source="euler"),
        "heston": stepped_density(df.models.heston(), source="euler"),
        "family": stepped_density(df.models.cir_family(), source="euler"),
        "seasonal": stepped_density(df.models.seasonal(), source="euler"),
        "lattice": stepped_density(df.models.ornstein_uhlenbeck(1), legs=4, lattice=True),
    }


def answers(density, starts):
    """Return log-densities at times up to the horizon, from other starts than `load` takes."""
    times, bare = density.horizon * np.linspace(1 / 64, 1, 64), _without_provenance(density)
    return np.asarray(_values(bare, jnp.asarray(times), jnp.asarray(starts[::-1])))


def outcome(path, content):
    """How loading ends, and the seconds it takes: refused, answers, silent about NaN, crashed."""
    began = time.perf_counter()
    try:
        density = df.load(path)
    except df.ModelFileError as error:
        result = "refused" if str(error).startswith(f"{path}: ") else "refused without a name"
        return result, time.perf_counter() - began
    except BaseException:
        traceback.print_exc()
        return "crashed", time.perf_counter() - began
    seconds = time.perf_counter() - began
    if density.horizon == 0:
        return "answers", seconds  # that nothing was learned
    values = answers(density, unpacked(content)[1]["fingerprint.given"])
    return "answers" if np.all(np.isfinite(values)) else "no answer", seconds


def unusual(folder):
    """Paths that are no files, or are too large; by name."""
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 10 * 2**30)
    (folder / "long header").write_bytes((2**40).to_bytes(8, "little"))
    os.truncate(folder / "long header", 2**30)
    return [folder, *(folder / name for name in ("pipe", "loop", "sparse", "long header"))]


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(count, seed, folder, keep):
    """Mutate and load `count` files, and some that never were models; `keep` those that pass."""
    rng, path = np.random.default_rng(seed), folder / "model.dflow"
    others = foreign()
    contents = {}
    for name, density in goods().items():
        density.save(path)
        contents[name] = path.read_bytes()
        assert outcome(path, contents[name])[0] == "answers"
    before, results, slowest = megabytes(), collections.Counter(), (0.0, "")

    def tried(kind, name, content):
        nonlocal slowest
        path.write_bytes(content)
        result, seconds = outcome(path, content)
        slowest = max(slowest, (round(seconds, 2), name))
        results[kind, result] += 1
        if result != "refused" and (kind, result) != ("forged", "answers"):
            print(json.dumps({"kind": kind, "how": name, "result": result}), flush=True)
            if keep is not None:
                (keep / f"{sum(results.values())}.dflow").write_bytes(content)

    def report():
        row = {"seed": seed, "files": sum(results.values())}
        row |= {f"{kind}, {result}": n for (kind, result), n in sorted(results.items())}
        row |= {"slowest": slowest, "more_megabytes": round(megabytes() - before)}
        print(json.dumps(row), flush=True)

    for place in unusual(folder):
        results["unusual", outcome(place, b"")[0]] += 1
    for name, content in others.items():
        tried("foreign", name, content)
    report()
    for index in range(count):
        base = list(contents)[index % len(contents)]
        if index % 2:
            mutation = ACCIDENTS[rng.integers(len(ACCIDENTS))]
            changed = mutation(rng, contents[base])
            if changed != contents[base]:
                tried("accident", f"{base}: {mutation.__name__}", changed)
        else:
            changed, how = forged(rng, *unpacked(contents[base]))
            tried("forged", f"{base}: {how}", changed)
        if index % 1000 == 999 or index == count - 1:
            jax.clear_caches()
            report()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, help="where to leave files that passed")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "files"
        folder.mkdir()
        fuzz(arguments.count, arguments.seed, folder, arguments.keep)
