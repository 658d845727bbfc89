"""Import of the optional packages of the extra `infer`."""

import importlib
from typing import Any


def extra(package: str) -> Any:
    """Import and return an optional module, or raise an error that says how to install it."""
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
