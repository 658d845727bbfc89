"""Long runs of Markov chains, which survive interruption.

A run advances in blocks of iterations. Each iteration has its own random key, so the result does
not depend on the blocks. The file has the state after the last block and all draws so far.
"""

import dataclasses
import os
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..storage.container import packed, read_container
from ..storage.files import write_atomically
from ..storage.strict_json import DataFileError, json_text, plain
from ..training.checkpoint_file import CheckpointError, CheckpointWarning, opened
from ..training.checkpointer import terminable
from ..uses.extras import extra

_KIND, _NAME, _FORMAT = "diracflow-chains", "chains.safetensors", 1
_MAX_BYTES = 2**34
# Iterations of a block: at most this number, and about as many as take one second.
_BLOCK, _SECONDS = 100, 1.0
# As for trainings: writing takes at most two per cent of the time.
_SPACING = 50
# Relative difference at which numbers of another run are different; processors round differently.
_ROUNDING = 1e-5

Records = dict[str, np.ndarray]


class Sampler(Protocol):
    """A transition kernel of several chains."""

    def step(self, key: PRNGKeyArray, index: Array, state: Any) -> tuple[Any, dict[str, Array]]:
        """Return the state after one iteration, and what is recorded of it."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Sizes of a run, and the user's wishes for it."""

    chains: int
    warmup: int
    draws: int
    checkpoint: str | os.PathLike | None = None
    progress: bool = False


def run_chains(
    sampler: Sampler,
    key: PRNGKeyArray,
    state: Any,
    options: RunOptions,
    identity: Mapping[str, Any],
) -> Records:
    """Return the records of all iterations after the warm-up, of shape `(chains, draws, ...)`.

    Chains start from `state`, unless the checkpoint has a later one of a run of the same
    `identity`, numbers and texts that distinguish it from others.
    """
    total = options.warmup + options.draws
    # All leaves become arrays of a definite type, as the compiled loop returns them.
    state = jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(a)), state)
    with ExitStack() as stack:
        file = None
        if options.checkpoint is not None:
            file = _ChainFile(stack.enter_context(opened(options.checkpoint)).path, plain(identity))
        run = _Run(sampler, key, state, options.warmup, file)
        bar = stack.enter_context(extra("tqdm").tqdm(total=total, disable=not options.progress))
        stack.enter_context(terminable())
        try:
            bar.update(run.done)
            while run.done < total:
                bar.update(run.advance(total - run.done))
        except BaseException as reason:
            if file is not None:
                reason.add_note(f"{file.path} keeps {run.done} iterations; the same call resumes.")
            raise
        finally:
            run.save()
    rows = {name: values[: options.draws] for name, values in run.records.items()}
    return {name: np.swapaxes(values, 0, 1) for name, values in rows.items()}


class _ChainFile:
    """The file of one run."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]):
        self.path, self._identity = folder / _NAME, identity

    def write(self, done: int, state: Any, records: Records) -> None:
        leaves = {f"state.{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(state))}
        draws = {f"draws.{name}": rows for name, rows in records.items()}
        header = {"format": _FORMAT, "done": done, "identity": self._identity}
        write_atomically(self.path, [packed(_KIND, json_text(header), leaves | draws)])

    def read(self, state: Any) -> tuple[int, Any, Records] | None:
        """Return iterations, state and records, if there is a file of the same run."""
        if not self.path.exists():
            return None
        try:
            header, arrays = read_container(self.path, _KIND, max_bytes=_MAX_BYTES)
            self._compare(header["identity"])
            old, tree = jax.tree.flatten(state)
            leaves = [arrays.pop(f"state.{i}") for i in range(len(old))]
            if header["format"] != _FORMAT or any(
                a.shape != b.shape or a.dtype != b.dtype for a, b in zip(leaves, old, strict=True)
            ):
                raise DataFileError("its arrays do not have the shapes of this run.")
        except (DataFileError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} cannot be resumed from: {error} Delete it to start again."
            ) from error
        records = {name.removeprefix("draws."): np.array(a) for name, a in arrays.items()}
        return int(header["done"]), jax.tree.unflatten(tree, map(jnp.array, leaves)), records

    def _compare(self, before: Mapping[str, Any]) -> None:
        names = [n for n, now in self._identity.items() if not _same(before.get(n), now)]
        if names:
            raise CheckpointError(
                f"{self.path} has the chains of another run. It differs in {', '.join(names)}. "
                "Give another directory, or delete this file to start again."
            )


class _Run:
    """Chains, and what was recorded of them so far."""

    def __init__(
        self, sampler: Sampler, key: PRNGKeyArray, state: Any, warmup: int, file: _ChainFile | None
    ):
        self._warmup, self._file = warmup, file
        found = None if file is None else file.read(state)
        self.done, self._state, self.records = found or (0, state, {})
        self._saved, self._next, self._size = self.done, 0.0, 1
        row = eqx.filter_eval_shape(sampler.step, key, jnp.asarray(0), state)[1]
        buffer = {n: jnp.zeros((_BLOCK, *a.shape), a.dtype) for n, a in row.items()}
        self._fixed = sampler, key, buffer
        self._blocks: list[Records] = [self.records] if self.records else []

    def advance(self, most: int) -> int:
        """Advance by one block of at most `most` iterations, and return their number."""
        began, count = time.monotonic(), min(self._size, most)
        span = jnp.asarray(self.done), jnp.asarray(count)
        self._state, rows = _block(*self._fixed, self._state, *span)
        skipped = min(max(self._warmup - self.done, 0), count)
        self._blocks.append({name: np.asarray(a[skipped:count]) for name, a in rows.items()})
        self.done += count
        each = (time.monotonic() - began) / count
        # The first block includes the compilation.
        self._size = int(np.clip(_SECONDS / each, 1, 2 * self._size)) if self.done > 1 else 2
        self._size = min(self._size, _BLOCK)
        if self._file is not None and time.monotonic() >= self._next:
            self.save()
        return count

    def save(self) -> None:
        """Join all records, and write the file if there is one."""
        if self._blocks:
            names = self._blocks[0]
            self.records = {n: np.concatenate([b[n] for b in self._blocks]) for n in names}
            self._blocks = [self.records]
        if self._file is not None and self.done > self._saved:
            began = time.monotonic()
            try:
                self._file.write(self.done, self._state, self.records)
                self._saved = self.done
            except OSError as error:  # which must not end a long run
                warnings.warn(
                    f"The chains could not be stored: {error} The run continues.",
                    CheckpointWarning,
                    stacklevel=6,
                )
            ended = time.monotonic()
            self._next = ended + _SPACING * (ended - began)


@eqx.filter_jit
def _block(
    sampler: Sampler, key: PRNGKeyArray, buffer: Any, state: Any, begin: Array, count: Array
) -> tuple[Any, dict[str, Array]]:
    """Return the state and the records after `count` iterations from `begin` on."""

    def body(i: Array, carry: tuple[Any, dict[str, Array]]) -> tuple[Any, dict[str, Array]]:
        state, row = sampler.step(key, begin + i, carry[0])
        return state, jax.tree.map(lambda rows, value: rows.at[i].set(value), carry[1], row)

    return jax.lax.fori_loop(0, count, body, (state, buffer))


def _same(old: Any, new: Any) -> bool:
    if isinstance(new, list) and isinstance(old, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(new, float) and isinstance(old, float):
        return abs(old - new) <= _ROUNDING * max(abs(old), abs(new))
    return bool(old == new)
