"""Headers and arrays of earlier formats, made into those of the next, one step at a time.

A step fills in what was not written yet, where only one value can be meant. Files whose parameters
mean something else today are refused.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..storage.errors import DataFileError
from ..storage.fields import Field
from .header import FORMAT

Arrays = dict[str, np.ndarray]
Step = Callable[[dict[str, Any], Arrays], tuple[dict[str, Any], Arrays]]


def format_of(header: Any) -> int:
    """The format of a header, if it is known."""
    written = Field(Field(header, "").mapping(most=100).get("format"), "format").whole(1, 10**6)
    if written > FORMAT:
        raise DataFileError(
            f"it has format {written}; this diracflow reads formats up to {FORMAT}. Upgrade "
            "diracflow."
        )
    return written


def migrated(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """What a file of any format would hold in the present one."""
    written = format_of(header)
    for number in range(written, FORMAT):
        try:
            header, arrays = STEPS[number](header, arrays)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, DataFileError):
                raise
            raise DataFileError(f"it has format {written}, but not its entries.") from error
        header = {**header, "format": number + 1}
    return header, arrays


def _from_1(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """One flow, with the tolerance of every step by itself."""
    if header["settings"]["masks"] != "fixed":
        raise _stranger(1, "Permuted masks were drawn in another way.")
    new = {"flow": "affine", "bumps": 4, "momentum": 0.0, "recall": 0.0, "allowance": None}
    return _with_settings(header, **new), arrays


def _from_2(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Points were draws of the laws themselves."""
    if header["settings"]["flow"] != "affine":
        raise _stranger(2, "Monotone layers had other bumps.")
    return _with_settings(header, effective_share=1.0), arrays


def _from_3(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """There was one source."""
    return _with_settings(header, source="euler"), arrays


def _from_4(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """No key, certificate or text of the SDE; fewer figures of each step."""
    figures = dict.fromkeys(("regularisation", "condition", "source_gap", "bound"), "NaN")
    history = [{**figures, **record} for record in header["history"]]
    sde = {**header["sde"], "text": {"drift": "", "diffusion": ""}}
    new = {"sde": sde, "history": history, "key": [], "certificate": [], "errors": []}
    return {**header, **new}, arrays


def _from_5(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """States ranged over the whole line, without parameters, from one time on."""
    line = [{"domain": "Real"}] * Field(header["sde"]["dim"], "sde.dim").whole(1, 1000)
    new = {
        "sde": {**header["sde"], "domain": line},
        "maps": line,
        "boundaries": [],
        "params": [],
        "start_times": None,
    }
    others = {name: array for name, array in arrays.items() if name != "probe_t"}
    tau = np.asarray(arrays["probe_t"] - Field(header["start_time"], "start_time").number())
    return {**header, **new}, {**others, "probe_tau": tau}


def _from_6(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The reason for a source came late; numbers that are not finite were bare."""
    if header["settings"]["source"] == "moments" and header["start_time"] is not None:
        raise _stranger(6, "Closures of moments took other steps.")
    return {"why_source": "", **header}, arrays


def _from_7(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Networks were given the start alone."""
    return _with_settings(header, context="start"), arrays


def _from_8(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Sources and flows worked along the axes, with one network in each layer."""
    return _with_settings(header, basis="axes", networks="shared"), arrays


def _from_9(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Flows were trained for the whole horizon."""
    return _with_settings(header, legs=1), arrays


def _from_10(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Legs were walked, and all alike; three or more are divided otherwise since."""
    legs = header["settings"]["legs"]
    # What is known of a density with such legs is known of another one.
    unknown: dict[str, Any] = {"certificate": [], "errors": []} if legs > 2 else {}
    return {**header, "leg": header["asked_horizon"] / legs, **unknown}, arrays


STEPS: dict[int, Step] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
    8: _from_8,
    9: _from_9,
    10: _from_10,
}


def _with_settings(header: dict[str, Any], **new: Any) -> dict[str, Any]:
    return {**header, "settings": {**new, **header["settings"]}}


def _stranger(number: int, why: str) -> DataFileError:
    return DataFileError(
        f"it has format {number}, whose parameters mean something else today. {why} Learn the "
        "model again."
    )
