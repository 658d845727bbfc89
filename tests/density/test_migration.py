"""Files that earlier versions wrote, with the log-densities that those versions computed.

All are Beneš's equation in the plane after a few steps of a small flow.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.density.header import FORMAT
from diracflow.density.model_file import read_header
from file_mutations import signed, unpacked

DATA = pathlib.Path(__file__).parents[1] / "data"
# With the flow and the source of each: those of the time.
FORMATS = {1: "affine", 2: "affine"} | dict.fromkeys(range(3, 11), "monotone")


def sample(number):
    return DATA / f"format_{number}.dflow"


@pytest.mark.parametrize("number", FORMATS)
def test_earlier_files_are_read(number):
    header = read_header(sample(number))
    written, _ = unpacked(sample(number).read_bytes())
    assert written["format"] == number
    assert header["format"] == FORMAT
    assert header["settings"]["flow"] == FORMATS[number]
    for name in ("horizon", "asked_horizon", "status", "starts", "versions"):
        assert header[name] == written[name]


@pytest.mark.parametrize("number", [1, 3, 10])
def test_earlier_densities_are_what_they_were(number):
    density = df.load(sample(number))
    was = json.loads(sample(number).with_suffix(".json").read_text())
    assert density.horizon == was["horizon"]
    x, t, x0 = (jnp.asarray(was[name]) for name in ("x", "t", "x0"))
    # Sums are done in another order since; some hundred roundings.
    np.testing.assert_allclose(density.log_prob(x, t, x0), was["log_prob"], rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4, 5, 6, 7, 8, 9])
def test_other_earlier_densities_are_what_they_were(number):
    test_earlier_densities_are_what_they_were(number)


@pytest.mark.parametrize(
    "number, setting, message",
    [(1, {"masks": "permuted"}, "drawn in another way"), (2, {"flow": "monotone"}, "other bumps")],
)
def test_parameters_that_mean_something_else_are_refused(number, setting, message, tmp_path):
    header, arrays = unpacked(sample(number).read_bytes())
    header["settings"] |= setting
    (tmp_path / "model.dflow").write_bytes(signed(header, arrays))
    with pytest.raises(df.ModelFileError, match=f"format {number}.*{message}.*Learn"):
        df.load(tmp_path / "model.dflow")


@pytest.mark.parametrize("number", FORMATS)
def test_earlier_files_must_have_their_entries(number, tmp_path):
    header, arrays = unpacked(sample(number).read_bytes())
    path = tmp_path / "model.dflow"
    for name in header:
        if name not in ("why_source",):
            path.write_bytes(signed({n: v for n, v in header.items() if n != name}, arrays))
            with pytest.raises(df.ModelFileError):
                read_header(path)
            path.write_bytes(signed({**header, name: [[]]}, arrays))
            with pytest.raises(df.ModelFileError):
                read_header(path)
    for name in arrays:
        path.write_bytes(signed(header, {n: a for n, a in arrays.items() if n != name}))
        with pytest.raises(df.ModelFileError):
            read_header(path)
