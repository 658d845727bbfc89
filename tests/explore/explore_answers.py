"""Decoding of binary answers, and densities that need no training."""

import json
import struct

import jax
import jax.random as jr
import numpy as np
from diracflow.planning.build_ansatz import build_ansatz
from diracflow.planning.sizes import sized

import diracflow as df
from diracflow.density.learned import Facts
from diracflow.planning.settings import settings_for
from diracflow.sde.conditioning import conditioning_laws
from diracflow.training.state import Trajectory


def unpacked(body):
    """Return header and numbers of a binary answer."""
    (length,) = struct.unpack("<I", body[:4])
    return json.loads(body[4 : 4 + length]), np.frombuffer(body[4 + length :], "<f4")


def fields(body):
    """Return box, learned and exact values of a picture."""
    header, numbers = unpacked(body)
    size, cloud = np.prod(header["shape"]), np.prod(header["cloud"])
    learned, exact = numbers[:size], numbers[size + cloud :]
    return np.array(header["box"]), *(v.reshape(header["shape"]) for v in (learned, exact))


def unmoved(model, horizon):
    """Return a density with the identity flow: its source, which is exact for linear SDEs."""
    laws = conditioning_laws(model.sde, model.starts, model.params, None)
    settings = sized(settings_for("quick", layers=2, hidden=4), model.sde.dim, laws.law.dim)
    with jax.enable_x64(True):
        ansatz = build_ansatz(model.sde, laws.law, 0.0, horizon, settings, jr.key(0))
    still = np.zeros((0, len(ansatz.theta)))
    trajectory = Trajectory(np.zeros(1), np.asarray(ansatz.theta)[None], still, still)
    facts = Facts(settings, "quick", horizon, df.Status.FINISHED, 0.0, (), {})
    return df.TransitionDensity(ansatz, trajectory, laws, facts)
