"""Packages that only some uses need, imported when these are asked for."""

import importlib
from typing import Any


def extra(package: str) -> Any:
    """A module of the extra `infer`, or an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"This needs the package `{error.name}`. Install it with "
            "`pip install 'diracflow[infer]'`.",
            name=error.name,
        ) from error
