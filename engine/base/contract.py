"""Results as JSON: from a dataclass to plain data and back.

The name of a field is its JSON key. Field metadata changes this for three kinds of fields: an `OPTIONAL` field is left
out if it is None; the fields of a `SPREAD` field, itself a dataclass, are merged into the parent object; a `named`
field has another key.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

JSON_VERSION = 1
"""The ``schema_version`` of what ``--json`` prints; it changes when a key is removed or changes its meaning."""

T = TypeVar("T")


OPTIONAL: Mapping[str, object] = {"optional": True}
SPREAD: Mapping[str, object] = {"spread": True}
"""Field metadata."""


def named(key: str) -> Mapping[str, object]:
    """Field metadata: the field has another key."""
    return {"key": key}


def to_json(result: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain data, nested dataclasses included."""
    data: dict[str, Any] = {}
    for name, key, spread, optional in _written(type(result)):  # type: ignore[arg-type]
        value = getattr(result, name)
        if spread:
            data |= to_json(value)
        elif value is not None or not optional:
            data[key] = value if type(value) in _AS_IT_IS else _plain(value)
    return data


def from_json(kind: type[T], data: Any) -> T:
    """The inverse of `to_json`. Missing fields get their defaults; unknown keys are ignored. Raises `ValueError` if a
    value is missing or has another type."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} is not an object")
    hints = _hints(kind)  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        key = _key(field)
        if field.metadata.get("spread"):
            given[field.name] = from_json(hints[field.name], data)
        elif key in data:
            given[field.name] = _read(hints[field.name], data[key], key)
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{kind.__name__} lacks a field: {error}") from error


_AS_IT_IS: frozenset[type] = frozenset({str, int, float, bool, type(None)})


class Reported:
    """What a command reports, a dataclass: as the object of its ``--json``, and back. ``kind`` names the class there; a
    row of a list has none, nor has what is only part of an object."""

    __slots__ = ()
    kind: ClassVar[str] = ""

    def as_json(self) -> dict[str, Any]:
        """The object, without its ``schema_version``."""
        return ({"kind": self.kind} if self.kind else {}) | to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """From the output of `as_json`; one of before had no ``kind``. Raises `ValueError` for anything else."""
        if isinstance(data, Mapping) and data.get("kind", cls.kind) != cls.kind:
            raise ValueError(f"{cls.__name__} is no {data['kind']}")
        return from_json(cls, data)


@cache
def _written(kind: type) -> tuple[tuple[str, str, bool, bool], ...]:
    """Of each field its name, its key, whether it is spread and whether it is optional."""
    return tuple(
        (each.name, _key(each), bool(each.metadata.get("spread")), bool(each.metadata.get("optional")))
        for each in fields(kind)
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _key(each: Field[Any]) -> str:
    return str(each.metadata.get("key", each.name))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_json(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _read(hint: Any, value: Any, at: str) -> Any:
    """``value`` as type ``hint``; ``at`` is its key."""
    origin, within = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in within:
            return None
        [kind] = [kind for kind in within if kind is not type(None)]
        return _read(kind, value, at)
    if origin is Literal:
        return _checked(value in within, value, at)
    if is_dataclass(hint):
        return from_json(hint, value)  # type: ignore[arg-type]
    if origin is tuple:
        return _tuple(within, _checked(isinstance(value, list | tuple), value, at), at)
    if origin is not None and issubclass(origin, Mapping):
        _checked(isinstance(value, Mapping), value, at)
        return {key: _read(within[1], one, key) for key, one in value.items()}
    if hint is float:
        return float(_checked(isinstance(value, int | float) and not isinstance(value, bool), value, at))
    right = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    return _checked(right, value, at)


def _tuple(within: tuple[Any, ...], values: Any, at: str) -> tuple[Any, ...]:
    if within[1:] == (...,):
        return tuple(_read(within[0], one, at) for one in values)
    _checked(len(values) == len(within), values, at)
    return tuple(_read(hint, one, at) for hint, one in zip(within, values, strict=True))


def _checked(right: bool, value: T, at: str) -> T:
    if not right:
        raise ValueError(f"'{at}' is a {type(value).__name__}")
    return value
