"""Many trainings from one file: over SDEs, seeds, presets and settings.

`sweep_file` reads the runs from TOML. `session` hands them to joblib, on this machine or a Dask or
Ray cluster. Each run has a folder and a process (`run_process`), and their results form one table.
"""

from .session import run_sweep
from .sweep_file import read_sweep
from .sweep_runs import Sweep, sweep_table

__all__ = ["Sweep", "read_sweep", "run_sweep", "sweep_table"]
