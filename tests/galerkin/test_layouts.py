"""Points divided over devices, and rows in chunks, give what one device and tables give."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.devices import Layout, checked_chunk, mesh_over
from diracflow.galerkin.rows import accumulated
from diracflow.planning.memory import CHUNK, fitting_layout, predicted_memory
from diracflow.planning.settings import settings_for

LAYOUTS = ("two", "two, chunks")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process with two devices has computed; devices are counted once in a process."""
    path = tmp_path_factory.mktemp("layouts") / "found.npz"
    script = pathlib.Path(__file__).with_name("layouts.py")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags}
    subprocess.run([sys.executable, str(script), str(path)], check=True, env=environment)
    with np.load(path) as file:
        tables = dict(file)
    return {
        n: {k.split("/")[1]: v for k, v in tables.items() if k.startswith(f"{n}/")}
        for n in ("one", *LAYOUTS)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_draws_do_not_depend_on_the_layout(found, layout):
    np.testing.assert_array_equal(found[layout]["x0"], found["one"]["x0"])
    # Points are carried by a flow, compiled for another number of rows.
    np.testing.assert_allclose(found[layout]["y"], found["one"]["y"], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_differ_by_rounding(found, layout):
    # Sums of 77 numbers in another order, and two derivatives of one function: 1e-13 of the largest
    # entry, at most. Solutions: that times a condition of 1e4, the inverse of the regularisation.
    solved = ("theta_dot", "theta", "residual", "fresh", "size", "projected", "log_ratio", "next")
    for name, expected in found["one"].items():
        bound = (1e-9 if name in solved else 1e-13) * np.max(np.abs(expected))
        np.testing.assert_allclose(found[layout][name], expected, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("chunk", [1, 4, 5, 10, 11])
def test_chunks_add_up(chunk):
    rows, weight = jnp.arange(20.0).reshape(10, 2), jnp.arange(10.0)
    total = accumulated(lambda a, w: (a.T @ (w[:, None] * a), w @ a), chunk, rows, weight=weight)
    np.testing.assert_allclose(total[0], rows.T @ (weight[:, None] * rows))
    np.testing.assert_allclose(total[1], weight @ rows)


def test_rows_are_streamed_where_tables_do_not_fit():
    settings = settings_for("quick", samples=2**20)
    whole = predicted_memory(settings, 1000, 2)
    streamed = fitting_layout(Layout(), 4.0, settings, 1000, 2)
    assert streamed.chunk == CHUNK
    assert predicted_memory(settings, 1000, 2, streamed) < 4e9 < whole
    assert fitting_layout(Layout(), 1e3, settings, 1000, 2) == Layout()
    assert fitting_layout(Layout(None, 64), 1e3, settings, 1000, 2).chunk == 64


@pytest.mark.parametrize(
    "devices", [0, -1, 99, 1.5, "all", True, [], ["cpu"], (jax.devices()[0],) * 2]
)
def test_devices_are_those_of_jax(devices):
    with pytest.raises(ValueError, match="`devices` must"):
        mesh_over(devices)


def test_one_device_needs_no_mesh():
    assert mesh_over(None) is None or jax.device_count() > 1
    assert mesh_over(1) is None
    assert mesh_over([jax.devices()[0]]) is None


@pytest.mark.parametrize("chunk", [0, -3, 1.5, "many", True])
def test_chunks_are_whole_numbers(chunk):
    with pytest.raises(ValueError, match="`chunk` must be (a whole number|at least 1)"):
        checked_chunk(chunk)
    model = df.models.brownian(1)
    with pytest.raises(ValueError, match="`chunk` must be (a whole number|at least 1)"):
        df.learn(model.sde, model.starts, 1.0, key=jax.random.key(0), chunk=chunk)
