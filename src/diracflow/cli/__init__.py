"""The command line. JAX is imported when a command runs, so that `--help` is fast."""

from .app import main

__all__ = ["main"]
