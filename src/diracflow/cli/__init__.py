"""The command line. Nothing here imports JAX until a command runs, so `--help` is instant."""

from .app import main

__all__ = ["main"]
