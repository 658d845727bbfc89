"""`diracflow loglik`: the likelihood of an observed path."""

from pathlib import Path
from typing import Any

import numpy as np

from ..uses.likelihood import log_likelihood
from .inputs import load_model
from .observed_series import read_states
from .streams import emit
from .tables import as_json


def print_loglik(
    model: Path, data: Path, given: dict[str, Any], sde: str | None, json: bool
) -> None:
    """The log-likelihood of the path in the file `data`, given its first state."""
    density = load_model(model, sde)
    times, states = read_states(data, density.dim)
    value = float(log_likelihood(density, times, states, given["params"]))
    if density.start_time is None:
        given = {**given, "start_time": times[:-1]}
    seen = int(np.sum(~np.isnan(states[:, 0])))
    found = {
        "log_likelihood": value,
        "transitions": seen - 1,
        "outside": float(np.mean(np.asarray(density.outside(states[:-1], **given)))),
    }
    emit(as_json(found) if json else f"{value:.10g}  ({seen - 1} transitions)")
