"""Progress of queries of many rows.

On a terminal a bar is redrawn; otherwise a plain line is printed every ten seconds.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from .batching import observed

# Seconds between two plain lines.
_PLAIN_EVERY = 10.0


@contextlib.contextmanager
def query_progress(shown: bool = True) -> Iterator[None]:
    """Within this context, queries of more than a million rows show their progress.

    It is printed to the standard error, and does not change results. Queries within a `jax.jit`
    show none.

    **Arguments:**

    - `shown`: if `False`, nothing is printed.
    """
    if not shown:
        yield
        return
    # A dumb terminal cannot redraw a line.
    live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with _bar() if live else contextlib.nullcontext(_lines()) as observer, observed(observer):
        yield


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int], object]]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rows", total=None)
        yield lambda done, rows: progress.update(task, completed=done, total=rows)


def _lines() -> Callable[[int, int], object]:
    last = time.monotonic()

    def observer(done: int, rows: int) -> None:
        nonlocal last
        if done == rows or time.monotonic() >= last + _PLAIN_EVERY:
            last = time.monotonic()
            print(f"{done} of {rows} rows", file=sys.stderr, flush=True)

    return observer
