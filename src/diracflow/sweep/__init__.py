"""Many trainings from one file: over SDEs, seeds, presets and settings.

A plan is read from TOML (`plan`), each of its runs has a folder of its own (`folder`) and is a
process of its own (`work`, started and watched by `launch`); a backend says where processes run,
and `session` sees all of them to their end. What they found is one table.
"""

from .backends import Backend, DaskBackend, LocalBackend, RayBackend
from .session import run_plan
from .sweep_file import Plan, read_plan
from .table import rows_of

__all__ = [
    "Backend",
    "DaskBackend",
    "LocalBackend",
    "Plan",
    "RayBackend",
    "read_plan",
    "rows_of",
    "run_plan",
]
