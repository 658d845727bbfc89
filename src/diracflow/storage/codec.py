"""Trees of objects as plain JSON and named arrays, and back.

A tree consists of modules, frozen dataclasses and named tuples, whose classes are looked up by name
in an explicit registry, of tuples, lists, dictionaries, enumerations, arrays and plain values.
Decoding makes objects of the registered classes with exactly their declared fields and runs their
own checks. It imports and executes nothing that the JSON names.
"""

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .strict_json import DataFileError, plain, printable

Arrays = dict[str, np.ndarray]
Classes = Mapping[str, type]

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Encoder:
    """Encodes values and collects their arrays.

    **Arguments:**

    - `classes`: the registry. Instances of other classes are stored under the name of their class.
    - `external`: returns the JSON object of a value that it encodes itself, and `None` for others.
        Such an object must not have the keys of an object of this module.
    """

    def __init__(self, classes: Classes, external: Callable[["Encoder", Any, str], Any]):
        self.arrays: Arrays = {}
        self._names = {cls: name for name, cls in classes.items()}
        self._external = external

    def __call__(self, value: Any, path: str) -> Any:
        """Return the plain structure of `value`; its arrays are named after `path`."""
        found = self._external(self, value, path)
        if found is not None:
            return found
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, enum.Enum):
            return {"class": self._name(type(value)), "member": value.name}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": plain(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return printable(value) if isinstance(value, str) else value
        if isinstance(value, np.ndarray | jax.Array):
            self.arrays[path] = np.asarray(value)
            return {"array": path}
        fields = _fields(type(value))
        if fields is not None:
            parts = {name: self(getattr(value, name), f"{path}.{name}") for name in fields}
            return {"class": self._name(type(value)), "fields": parts}
        if isinstance(value, tuple | list):
            items = [self(item, f"{path}.{index}") for index, item in enumerate(value)]
            return items if isinstance(value, tuple) else {"list": items}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self(item, f"{path}.{name}") for name, item in value.items()}}
        raise ValueError(
            f"`{path}` is of the type {type(value).__name__}, which files cannot hold. Files hold "
            "modules, frozen dataclasses, tuples, lists, dictionaries, arrays and plain values."
        )

    def _name(self, cls: type) -> str:
        if cls not in self._names and cls.__name__ in self._names.values():
            raise ValueError(f"diracflow has a class `{cls.__name__}`; rename yours to save it.")
        return self._names.get(cls, cls.__name__)


class Decoder:
    """Decodes what an `Encoder` encoded.

    **Arguments:**

    - `arrays`: the arrays by name; each is used once.
    - `classes`: the registry.
    - `external`: decodes JSON objects of a caller's own.
    - `missing`: makes a stand-in for an object of a class that is not registered, from its fields.
        By default such a class raises an error.
    """

    def __init__(
        self,
        arrays: Arrays,
        classes: Classes,
        external: Callable[["Decoder", dict[str, Any], str], Any],
        missing: Callable[..., Any] | None = None,
    ):
        self._arrays, self._classes = dict(arrays), classes
        self._external, self._missing = external, missing

    def __call__(self, node: Any, path: str) -> Any:
        """Return the value that a plain structure describes."""
        if isinstance(node, str):
            if printable(node) != node:
                raise DataFileError(f"`{path}` must be a text without control characters.")
            return node
        if isinstance(node, list):
            return tuple(self(item, f"{path}.{index}") for index, item in enumerate(node))
        if not isinstance(node, dict):
            return node
        match node:
            case {"array": str(name), **rest} if not rest:
                if name not in self._arrays:
                    raise DataFileError(f"`{path}` needs an array {name[:60]!r}, which is missing.")
                return self._arrays.pop(name)
            case {"float": str(word), **rest} if not rest and word in _NUMBERS:
                return _NUMBERS[word]
            case {"list": list(items), **rest} if not rest:
                return list(self(items, path))
            case {"dict": dict(items), **rest} if not rest:
                return {self(n, path): self(item, f"{path}.{n}") for n, item in items.items()}
            case {"class": str(name), "fields": dict(fields), **rest} if not rest:
                return self._object(name, fields, path)
            case {"class": str(name), "member": str(member), **rest} if not rest:
                cls = self._class(name, path)
                if not issubclass(cls, enum.Enum) or member not in cls.__members__:
                    raise DataFileError(
                        f"`{path}` must be a member of {name}; got {member[:40]!r}."
                    )
                return cls[member]
        return self._external(self, node, path)

    def require_all_used(self) -> None:
        """Raise if there are arrays that nothing referred to."""
        if self._arrays:
            raise DataFileError(f"it has an unknown array {min(self._arrays)[:60]!r}.")

    def _object(self, name: str, fields: dict[str, Any], path: str) -> Any:
        if name not in self._classes and self._missing is not None:
            return self._missing(**{n: self(part, f"{path}.{n}") for n, part in fields.items()})
        cls = self._class(name, path)
        expected = _fields(cls)
        if expected is None or set(fields) != set(expected):
            raise DataFileError(
                f"`{path}` of the class {name} must have the fields {', '.join(expected or ())}; "
                f"got {', '.join(fields)[:200]}."
            )
        values = {n: self(fields[n], f"{path}.{n}") for n in expected}
        try:
            hints = typing.get_type_hints(cls)
        except (NameError, TypeError):  # of another library's class
            hints = {}
        for field, value in values.items():
            hint = hints.get(field, Any)
            # A stand-in for an object of an unknown class fits everywhere.
            if isinstance(value, self._missing or ()) or fits(value, hint):  # type: ignore[arg-type]
                continue
            simple = value is None or isinstance(value, bool | int | float | str)
            raise DataFileError(
                f"`{path}.{field}` must be of the type {getattr(hint, '__name__', hint)}; got "
                f"{repr(value)[:60] if simple else type(value).__name__}."
            )
        return made(cls, values)

    def _class(self, name: str, path: str) -> type:
        if name not in self._classes:
            raise DataFileError(
                f"`{path}` is an object of a class {name[:40]!r} that is not known. If the class "
                f"is yours, pass it: `load(path, classes=[{printable(name[:40])}])`."
            )
        return self._classes[name]


def made(cls: type, values: dict[str, Any]) -> Any:
    """Return an object with these fields, after the checks of its class but without `__init__`."""
    if issubclass(cls, tuple):
        return cls(**values)
    found = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    check = "__check_init__" if issubclass(cls, eqx.Module) else "__post_init__"
    for base in cls.__mro__:
        if check in vars(base):
            vars(base)[check](found)
    return found


def fits(value: Any, hint: Any) -> bool:
    """Return `True` if a value is of an annotated type, as far as the annotation is simple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (int, float):
        kinds = int if hint is int else int | float
        return isinstance(value, kinds) and not isinstance(value, bool)
    if hint in (jax.Array, np.ndarray):
        return isinstance(value, np.ndarray)
    if hint is None:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[1:] == (...,):
            arguments = arguments[:1] * len(value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(item, arguments[1]) for item in value.values()
        )
    if hasattr(hint, "dtypes"):  # an annotation of `jaxtyping`; blocks of layers add an axis
        return isinstance(value, np.ndarray) and str(value.dtype) in hint.dtypes
    if hint is Any or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    return isinstance(value, hint)


def _fields(cls: type) -> tuple[str, ...] | None:
    """Return the names of the declared fields, or `None` for a class without fields."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return getattr(cls, "_fields", None) if issubclass(cls, tuple) else None
