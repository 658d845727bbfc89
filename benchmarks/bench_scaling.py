"""How does a velocity scale over devices and processes, and is the model of its cost right?

One JSON line for each case. `strong` keeps the number of points, `weak` keeps it for each device;
`devices` are forced devices of one process, `processes` have one device each and talk over
loopback. Every device is given one core: a process with D devices may use D cores (`taskset`), a
process of several one. So efficiencies compare one core with two, as ratios within one run. XLA's
threads are shared by the devices of a process, so a device may get less or more than its core.

Each line also has what `cost_model.py` predicts; the three rates of this machine in it are measured
in the same run with one core.

Run: python benchmarks/bench_scaling.py
"""

import json
import os
import socket
import subprocess
import sys
import time
from statistics import median

REPEATS = 7
HIDDEN = 8


def child(mode: str, count: int, number: int, port: int, samples: int, chunk: int) -> None:
    """Measure a velocity in a process of its own; the first prints its median time."""
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[:count] if mode == "devices" else [cores[number % len(cores)]]
    os.sched_setaffinity(0, mine)
    if mode == "devices":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    import jax

    from diracflow.training.multiprocess import join

    jax.config.update("jax_enable_x64", True)
    if mode == "processes" and count > 1:
        join(f"127.0.0.1:{port}", count, number)
    import jax.numpy as jnp
    import jax.random as jr

    import diracflow as df
    from diracflow.galerkin.collocation import draw, laid_out, place
    from diracflow.galerkin.devices import Layout, mesh_over
    from diracflow.galerkin.velocity import velocity
    from diracflow.planning.prepare import prepare
    from diracflow.planning.settings import settings_for
    from diracflow.sde.problem import checked_problem
    from diracflow.sde.quasi_random import CUBES

    model = df.models.benes()
    problem = checked_problem(model.sde, model.starts, 1.0)
    ansatz = prepare(problem, settings_for("accurate", hidden=HIDDEN), jr.key(0)).ansatz
    theta = ansatz.theta + 0.1 * jr.normal(jr.key(1), ansatz.theta.shape)
    layout = Layout(mesh_over(None), chunk or None)
    draws = laid_out(draw(CUBES["sobol"], jr.key(2), model.starts, 2, samples, 0.7), layout)
    clock, own = jnp.array(0.5), layout.repeat(ansatz)
    points = place(own, theta, clock, draws)
    still = jnp.zeros_like(theta)
    arguments = (own, theta, clock, points, jnp.array(1e-6), still, jnp.stack([still] * 3))
    found = {"M": len(theta), "s": _median(lambda: jax.block_until_ready(velocity(*arguments)))}
    if mode == "devices" and count == 1:
        rows = jr.normal(jr.key(3), (samples, len(theta)))
        product = jax.jit(lambda a: a.T @ a)
        gram = product(rows) / samples + jnp.eye(len(theta))
        cholesky = jax.jit(jnp.linalg.cholesky)
        found["product_s"] = _median(lambda: jax.block_until_ready(product(rows)))
        found["cholesky_s"] = _median(lambda: jax.block_until_ready(cholesky(gram)))
    if number == 0:
        print(json.dumps(found), flush=True)


def _median(call) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times)


def measured(mode: str, count: int, samples: int, chunk: int = 0) -> dict:
    """One case, in one or several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, mode, *map(str, (count, i, port, samples, chunk))],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count if mode == "processes" else 1)
    ]
    answers = [process.communicate()[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    return json.loads(next(line for line in answers[0].splitlines() if line.startswith("{")))


def main() -> None:
    from cost_model import Machine, Size, seconds

    samples, chunk = 4096, 512
    alone = measured("devices", 1, samples)
    m = alone["M"]
    # An all-reduce over loopback is a copy or two; its rate is a guess, and so is its latency.
    rates = (2 * samples * m**2 / alone["product_s"], m**3 / 3 / alone["cholesky_s"])
    rest = alone["s"] - 5 / 8 * alone["product_s"] - alone["cholesky_s"]
    here = Machine("here", 1.0, *rates, 2e9, 1e-3)
    cases = [("tables", mode, 0) for mode in ("devices", "processes")]
    cases.append(("streamed", "devices", chunk))
    for rows, mode, held in cases:
        one = measured(mode, 1, samples, held)
        for kind, points in (("strong", samples), ("weak", 2 * samples)):
            two = measured(mode, 2, points, held)
            size = Size(points, m, rest / samples / m)
            expected = seconds(size, here, 2)["total_s"]
            ideal = one["s"] if kind == "weak" else one["s"] / 2
            line = {
                "kind": kind,
                "over": mode,
                "rows": rows,
                "N": points,
                "M": m,
                "one_s": round(one["s"], 4),
                "two_s": round(two["s"], 4),
                "efficiency": round(ideal / two["s"], 2),
            }
            if rows == "tables":
                line |= {
                    "model_s": round(expected, 4),
                    "model_ratio": round(two["s"] / expected, 2),
                }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        main()
