"""What is given to methods and plans: arguments of other names and types and numbers out of range are refused in one
line, before anything is done."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from ..engine.base.errors import UsageError, did_you_mean
from ..engine.store.settings import KINDS

LIMITS: Mapping[str, Any] = {"max_calls": int | None, "max_cost": float | None, "dry_run": bool | None}
"""What methods that ask the LLM take besides options and settings, and the type of each."""
LEAST: Mapping[str, int] = {
    "batch": 1, "candidates": 2, "count": 1, "depth": 2, "limit": 1, "prompts": 1, "rounds": 1, "sample": 1,
    "samples": 1, "seeds": 1, "sets": 2, "size": 1,
}  # fmt: skip
"""The least value of whole numbers, as the commands have it; of others 0."""
SHARES = ("below", "held_out", "least", "sure")
"""Numbers from 0 to 1."""
WORDS: Mapping[Any, tuple[str, str]] = {
    bool: ("True or False", "True or False"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
    NoneType: ("None", "None"),
}
"""What a type is called, and several of it."""
NUMBERS: Mapping[Any, Any] = {int: Integral, float: Real}
"""Types that numbers of numpy have, too."""

T = TypeVar("T")


def with_methods(kind: type[T], wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> type[T]:
    """The class with each of its public methods as it is ``wrapped``."""
    for name, member in [*vars(kind).items()]:
        own = member.__func__ if isinstance(member, classmethod) else member
        if isinstance(own, FunctionType) and (name == "__init__" or not name.startswith("_")):
            method = wrapped(own)
            setattr(kind, name, classmethod(method) if isinstance(member, classmethod) else method)
    return kind


def checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which raises `UsageError` for arguments it has not or that do not fit its annotations."""
    signature, name = inspect.signature(method), method.__name__.strip("_")
    names = [*signature.parameters][1:]

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((keyword for keyword in kwargs if keyword not in names), "")
            raise UsageError(
                f"{name}: {error}{did_you_mean(unknown, names)}", f"{name} takes {', '.join(names) or 'nothing'}"
            ) from None
        kinds = _kinds(method)
        for argument, value in given.arguments.items():
            if signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD:
                for unknown in value.keys() - KINDS.keys() - LIMITS.keys() if argument == "settings" else ():
                    near = did_you_mean(unknown, [*names, *KINDS])
                    raise UsageError(f"unknown setting '{unknown}'{near}", f"{name} takes {', '.join(names)}")
                for limit in LIMITS.keys() & value.keys():
                    value[limit] = check(limit, value[limit], LIMITS[limit])
            elif value is not signature.parameters[argument].default:
                given.arguments[argument] = check(argument, value, kinds.get(argument, Any))
        return method(*given.args, **given.kwargs)

    return call


def check(name: str, value: Any, kind: Any) -> Any:
    """The value of the argument ``name``, numbers of numpy as Python's. Raises `UsageError` unless it is of this type
    and in the range of its name."""
    if not _fits(value, kind):
        near = did_you_mean(value, _choices(kind)) if isinstance(value, str) else ""
        what = (
            f"there is no {name} {reprlib.repr(value)}{near}" if _choices(kind) else f"{name} is {reprlib.repr(value)}"
        )
        raise UsageError(what, ", or ".join(_told(kind)))
    if kind is Any or isinstance(value, bool) or not isinstance(value, Real):
        return value
    number, least = float(value), LEAST.get(name, 0)
    if name in SHARES and not 0 <= number <= 1:
        raise UsageError(f"{name} is {value}", "give a number from 0 to 1")
    if number < least and (isinstance(value, Integral) or name in LIMITS):
        raise UsageError(f"{name} is {value}", f"give {least} or more")
    return int(value) if isinstance(value, Integral) else number


@cache
def _kinds(method: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of a method's arguments. What is imported for types alone may be anything."""

    def kind(annotation: Any) -> Any:
        try:
            return eval(annotation, method.__globals__)  # our own annotations
        except (NameError, AttributeError):
            return Any

    return {name: kind(one) for name, one in method.__annotations__.items() if name != "return"}


def _fits(value: Any, kind: Any) -> bool:
    """Whether the value is of this type. Of what can be walked through once only, the members are not looked at."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or getattr(kind, "_is_protocol", False):
        return True
    if origin is Literal:
        return any(isinstance(value, type(choice)) and value == choice for choice in parts)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(name, parts[0]) and _fits(member, parts[1]) for name, member in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):  # columns of frames, too
        several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return several and (isinstance(value, Iterator) or all(_fits(member, parts[0]) for member in value))
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool) and abs(value) < math.inf
    return isinstance(value, str | PathLike) if kind is Path else isinstance(value, kind)


def _choices(kind: Any) -> list[str]:
    """The texts that a type allows, if it is one of some."""
    return [*get_args(kind)] if get_origin(kind) is Literal else []


def _told(kind: Any) -> list[str]:
    """What would fit, as sentences have it."""
    origin, parts = get_origin(kind), get_args(kind)
    if choices := _choices(kind):
        return [f"one of: {', '.join(choices)}"]
    if kind in WORDS:
        return [WORDS[kind][0]]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"a mapping of {WORDS[parts[0]][1]} to {WORDS.get(parts[1], ('', 'others'))[1]}"]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [f"a list of {WORDS.get(parts[0], ('', f'{parts[0].__name__}s'))[1]}"]
    return [each for part in parts for each in _told(part)] if parts else [f"a {kind.__name__}"]
