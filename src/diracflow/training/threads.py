"""A limit on the cores that this process uses. This module does not import JAX.

XLA, its compiler and NumPy's linear algebra start their threads independently. On Linux all of them
respect the CPU affinity of the process, which can be narrowed at any time. On other systems only
the number of XLA's threads can be limited, before they are started.
"""

import os
import sys
from pathlib import Path

# XLA reads these when it starts its threads, linear algebra libraries when they are loaded.
_COUNTS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(threads: int) -> None:
    """Use at most `threads` cores, from now on and in the whole process.

    On Linux this can be called at any time; it narrows the CPU affinity, as `taskset` does, until
    the process ends. On other systems it must be called before JAX is imported, and limits XLA's
    threads only.

    **Arguments:**

    - `threads`: number of cores, at least 1.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"`threads` must be a whole number, at least 1; got {threads!r}.")
    has_affinity = hasattr(os, "sched_setaffinity")
    if not has_affinity and "jax" in sys.modules:
        raise ValueError(
            "On this system threads can be limited only before JAX is imported: call "
            f"`limit_threads` first, or set the environment variable NPROC={threads}."
        )
    for name in _COUNTS:
        os.environ[name] = str(threads)
    if not has_affinity:
        return
    allowed = sorted(os.sched_getaffinity(0))
    # Processes that run at the same time should not all use the first cores.
    first = os.getpid() % len(allowed)
    chosen = {*(allowed[first:] + allowed[:first])[:threads]}
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), chosen)
        except ProcessLookupError:  # the thread has just ended
            continue
