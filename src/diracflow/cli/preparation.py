"""What every command that computes does first.

Not beside a command that draws: others must not need matplotlib.
"""

import contextlib
import os
from pathlib import Path

import jax


def prepare_jax() -> None:
    """Float64 throughout, and compiled code kept from one command to the next."""
    jax.config.update("jax_enable_x64", True)
    if getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009 (unknown to types)
        cache = Path(os.path.expanduser("~")) / ".cache" / "diracflow"
        # Without a home that can be written to, code is compiled anew each time.
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK):
                jax.config.update("jax_compilation_cache_dir", str(cache))
