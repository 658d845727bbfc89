"""Packages of the optional extras."""

import importlib
from typing import Any


def extra(package: str, group: str = "infer") -> Any:
    """Import and return a module of an extra, or raise an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"This needs the package `{error.name}`. Install it with "
            f"`pip install 'diracflow[{group}]'`.",
            name=error.name,
        ) from error
