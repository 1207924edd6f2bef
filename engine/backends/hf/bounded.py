"""Chat templates are programs of a model's author, which transformers runs in a sandbox of Jinja's.

That lets none reach what is around it, but a single step such as ``9 ** 9 ** 9`` or ``'a' * 10 ** 10`` takes for ever,
or all memory. Here operators, filters and methods of texts pay for what they will make; what takes long by many steps
is ended by `tokens.render`. Two things pay nothing: comparing and writing lists that hold each other many times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import Template, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST = 1 << 28
"""Characters and elements that the steps of one rendering may make, bounded from above."""
made: ContextVar[int] = ContextVar("made", default=0)
"""How many they have made."""


def _spend(amount: int) -> None:
    made.set(made.get() + amount)
    if made.get() > MOST:
        raise SecurityError(f"makes more than {MOST:,} characters on its way")


def _wide(value: object) -> int:
    """Characters of a text or of the texts in a list, the number itself, and 1 for anything else."""
    if isinstance(value, (list, tuple, range)):
        return len(value) + sum(len(part) for part in value if isinstance(part, str))
    return len(value) if isinstance(value, str) else abs(value) if isinstance(value, int) else 1


def _concat(parts: Iterable[str]) -> str:
    texts = list(parts)
    _spend(sum(map(len, texts)))
    return "".join(texts)


def _pay(value: object, given: Iterable[object]) -> None:
    """For a filter or a method, which at most puts all it is given in the place of each part of its value."""
    size = 1 if isinstance(value, int) else 1 + _wide(value)
    for other in given:
        size *= 1 + _wide(other)
    _spend(size)


def _paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays; of what it is given the first may be Jinja's."""
    first = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)  # with that mark
    def paid(*given: Any, **named: Any) -> Any:
        _pay(given[first], [*given[first + 1 :], *named.values()])
        return function(*given, **named)

    return paid


class _Code(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - as Jinja has it
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


class Bounded(ImmutableSandboxedEnvironment):
    """Jinja's sandbox for templates without any notion of what is much."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Code
    concat = staticmethod(_concat)

    def from_string(self, source: Any, *given: Any, **named: Any) -> Template:
        # only now: transformers has put its own filters among them
        self.filters = {name: _paid(function) for name, function in self.filters.items() if name != "format"}
        self.globals.pop("lipsum", None)
        return super().from_string(source, *given, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if all(isinstance(value, (int, float)) for value in (left, right)):
            if operator == "**" or max(abs(left), abs(right)) > 1 << 64:
                raise SecurityError("computes with numbers that are too large")
        elif operator == "%" and isinstance(left, str):  # the widths are in the text, as in those of format
            raise SecurityError("% is for numbers alone")
        else:
            _spend(_wide(left) * _wide(right) if operator == "*" else _wide(left) + _wide(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *given: Any, **named: Any) -> Any:
        if isinstance(text := getattr(function, "__self__", None), str):
            _pay(text, [*given, *named.values()])
        return super().call(context, function, *given, **named)

    def wrap_str_format(self, value: Any) -> Any:
        if super().wrap_str_format(value) is not None:
            raise SecurityError("format is for no template")
        return None
