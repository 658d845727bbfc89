"""A limit on the cores that this process computes on. Nothing here imports JAX.

Threads of XLA, of its compiler and of NumPy's linear algebra are made by three parties with a rule
of their own each. On Linux all of them obey the set of cores that the process may use; it can be
narrowed at any time. Elsewhere only XLA's threads can be counted, before there are any.
"""

import os
import sys
from pathlib import Path

# Read by XLA when it makes its threads, and by libraries of linear algebra when they are loaded.
_COUNTS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(threads: int) -> None:
    """Compute on at most so many cores, from now on and in the whole process.

    On Linux it holds at any time, and for as long as the process lives: it narrows the cores that
    are allowed (as `taskset` does) to some of them. Elsewhere it must be called before JAX has
    computed anything, and limits XLA's threads only.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"`threads` must be a whole number, at least 1; got {threads!r}.")
    pinned = hasattr(os, "sched_setaffinity")
    if not pinned and "jax" in sys.modules:
        raise ValueError(
            "On this system threads can be limited only before JAX is imported: call "
            f"`limit_threads` first, or set the environment variable NPROC={threads}."
        )
    for name in _COUNTS:
        os.environ[name] = str(threads)
    if pinned:
        _narrow(threads)


def _narrow(threads: int) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    # Processes started side by side should not crowd on the first cores.
    first = os.getpid() % len(allowed)
    chosen = {*(allowed[first:] + allowed[:first])[:threads]}
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), chosen)
        except ProcessLookupError:  # a thread that has just ended
            continue
