"""How long does a user wait for compilation, at first and with the persistent cache?

Each line comes from a process of its own that learns two steps of Beneš twice: the second time
nothing is left to compile, and the difference is the wait. (The certificate at the end of a
training compiles for some seconds more.) `cold` has an empty cache directory, `cached` the one that
`cold` has filled.

Run: python benchmarks/bench_compile.py
"""

import json
import os
import subprocess
import sys
import tempfile

SCRIPT = """
import time, warnings
warnings.simplefilter("ignore")
began = time.perf_counter()
import jax.random as jr
import diracflow as df
model = df.models.benes()
times = [time.perf_counter()]
for _ in range(2):
    df.learn(model.sde, model.starts, model.horizon, key=jr.key(0), max_steps=2, certify=False)
    times.append(time.perf_counter())
print(times[0] - began, times[1] - times[0], times[2] - times[1])
"""


def bench(kind: str, cache: str) -> dict:
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", SCRIPT]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported, first, second = map(float, answer.stdout.split())
    return {
        "kind": kind,
        "import_s": round(imported, 2),
        "two_steps_s": round(second, 2),
        "compile_s": round(first - second, 2),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            print(json.dumps(bench(kind, cache)), flush=True)
