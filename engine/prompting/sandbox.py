"""Template files: Jinja, in which roles are tags, and which can neither reach nor exhaust what is around them.

A template may come from somebody else. It sees texts, numbers, lists and tables, never an object; it calls nothing but
its own macros; it includes no other file; and what it writes, makes and repeats is bounded together.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from traceback import walk_tb
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes, pass_context
from jinja2 import Template as Program
from jinja2.ext import Extension
from jinja2.filters import do_last, sync_do_first, sync_do_list, sync_do_unique
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..base.errors import UsageError
from ..pool.prompts import lettered
from ..pool.records import Message

ROLES = ("system", "developer", "user", "assistant", "tool")
LONGEST = 64 << 10
"""Characters of a template file."""
MOST = 4_000_000
"""Characters that one rendering may write."""
STEP = 20
"""Characters that a round of a loop or macro counts as, without the code in it: it takes about as long."""
NAMES = frozenset({
    "query", "shots", "labels", "options", "instruction", "system", "cue", "answer_prefix",
})  # fmt: skip
"""What a template can read."""
_JINJAS = ("_loop_vars", "_block_vars")
"""What Jinja adds to calls for functions that take its context."""
PROGRAM = "template"
"""The name of a template's program in a traceback."""
_STATE = "this rendering"
"""A name that no template can write."""
_LOOP = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"})


class Forbidden(TemplateError):
    """What no template may do."""


@dataclass(slots=True)
class _Rendering:
    """The turns so far, and how much was written or repeated."""

    turns: list[Message] = field(default_factory=list)
    within: str = ""
    spent: int = 0

    def spend(self, amount: int) -> None:
        self.spent += amount
        if self.spent > MOST:
            raise Forbidden(f"it writes or repeats too much: more than {MOST:,} characters or steps")


class _Roles(Extension):
    """``{% user %} … {% enduser %}``: the text between the tags is one turn."""

    tags = set(ROLES)  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Parser) -> nodes.Node:
        token = next(parser.stream)
        body = parser.parse_statements((f"name:end{token.value}",), drop_needle=True)
        turn = self.call_method("turn", [nodes.ContextReference(), nodes.Const(token.value)])
        return nodes.CallBlock(turn, [], [], body).set_lineno(token.lineno)

    def turn(self, context: Context, role: str, caller: Macro) -> str:
        state = context.parent[_STATE]
        if state.within:
            raise Forbidden(f"a turn stands inside a turn: {role} inside {state.within}")
        state.within = role
        state.turns.append(Message(role, caller()))
        state.within = ""
        return ""

    def step(self, context: Context, amount: int) -> None:
        context.parent[_STATE].spend(amount)

    def sliced(self, context: Context, value: object) -> object:
        """The value; its slice is paid for, which Jinja takes without asking the sandbox."""
        context.parent[_STATE].spend(_width(value))
        return value

    def compared(self, context: Context, value: object) -> object:
        """The value; its comparison is paid for, of so many characters as a step."""
        context.parent[_STATE].spend(_size(value) // STEP)
        return value


def _width(value: object) -> int:
    """Characters of a text, or elements of a list."""
    return len(value) if isinstance(value, (str, list, tuple, Mapping)) else 1


def _size(value: object) -> int:
    """Characters and elements of a value, of all that is in it, as often as it is in it."""
    if type(value) is str and len(value) <= MOST:
        return len(value)
    waiting, size = [value], 0
    while waiting:
        part = waiting.pop()
        size += len(part) if isinstance(part, str) else 1
        if size > MOST:
            raise Forbidden(f"a value has more than {MOST:,} characters or elements")
        if isinstance(part, Mapping):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple)):
            waiting += part
    return size


@pass_context
def _printed(context: Context, value: object) -> str:
    """What an expression writes: texts, numbers, and nothing for none; lists and tables as JSON."""
    if type(value) is not str:
        _size(value)
    text = value if type(value) is str else "" if value is None else _text(value)
    context.parent[_STATE].spend(len(text))
    return text


def _text(value: object) -> str:
    if isinstance(value, (Undefined, Macro)):
        return str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, list, dict, tuple)) else str(value)


def _join(values: Iterable[Any], between: str = "") -> str:
    values = list(values)
    texts = [_text(value) if type(value) is not str else value for value in values]
    if sum(map(len, texts)) + len(between) * len(texts) > MOST:
        raise Forbidden("join makes too long a text")
    return between.join(texts)


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MOST:
        raise Forbidden("replace makes too long a text")
    return text.replace(old, new)


def _indent(text: str, width: int = 4, first: bool = False) -> str:
    margin = " " * min(int(width), 40)
    if len(text) + text.count("\n") * len(margin) > MOST:
        raise Forbidden("indent makes too long a text")
    return (margin if first else "") + text.replace("\n", "\n" + margin)


def _tojson(value: object, indent: int | None = None, compact: bool = False) -> str:
    """``compact``: without blanks, as JavaScript writes it."""
    wide = None if indent is None else min(int(indent), 8)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=wide, separators=(",", ":") if compact else None)
    parts, size = list[str](), 0
    for part in encoder.iterencode(value, _one_shot=wide is None):  # margins may take far more than the value
        size += len(part)
        if size > MOST:
            raise Forbidden("tojson makes too long a text")
        parts.append(part)
    return "".join(parts)


FILTERS: Mapping[str, Any] = {
    "default": None, "first": None, "last": None, "length": None, "list": None, "reverse": None, "unique": None,
    "lower": None, "upper": None, "title": None, "capitalize": None, "trim": None, "int": None, "float": None,
    "join": _join, "replace": _replace, "indent": _indent, "lettered": lettered,
    "tojson": _tojson, "string": _text, "lines": str.splitlines,
}  # fmt: skip
"""By name; those without a function are Jinja's own."""
_WITH_JINJA: Mapping[str, Any] = {
    "first": sync_do_first, "last": do_last, "unique": sync_do_unique, "list": lambda _, value: sync_do_list(value),
}  # fmt: skip
"""Filters of Jinja's that take its environment first."""


_SHALLOW = frozenset({
    "default", "first", "last", "length", "list", "reverse", "defined", "undefined", "none", "string", "number",
    "boolean", "true", "false", "sequence", "mapping", "odd", "even", "divisibleby",
})  # fmt: skip
"""Filters and tests that do not look into the elements of a value; a filter ``string`` does."""


def _paid(function: Callable[..., Any], measure: Callable[[object], int], *before: object) -> Callable[..., Any]:
    """A filter or test that pays for what it is given and for what it makes; it never runs while a template is
    compiled. ``before``: its arguments before the value."""

    @pass_context
    def paid(context: Context, value: object, *given: object, **named: object) -> Any:
        state = context.parent[_STATE]
        state.spend(sum(map(measure, (value, *given, *named.values()))))
        made = function(*before, value, *given, **named)
        if isinstance(made, Iterator):  # else its address in memory is what would be written
            made = list(made)
        if made is not value:
            state.spend(measure(made))
        return made

    return paid


TESTS = (
    "defined", "undefined", "none", "string", "number", "boolean", "true", "false", "sequence", "mapping", "odd",
    "even", "divisibleby", "in", "eq", "==", "equalto", "ne", "!=", "lt", "<", "gt", ">", "le", "<=", "ge", ">=",
)  # fmt: skip


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja for the templates of strangers."""

    intercepted_binops = frozenset({"+"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, finalize=_printed, extensions=[_Roles],
            autoescape=False, cache_size=0,
        )  # fmt: skip
        self.globals.clear()
        filters: Mapping[str, Any] = {**self.filters, **{name: own for name, own in FILTERS.items() if own}}
        tests: Mapping[str, Any] = self.tests
        self.filters = {
            name: _paid(_WITH_JINJA[name], _width if name in _SHALLOW else _size, self)
            if name in _WITH_JINJA
            else _paid(filters[name], _width if name in _SHALLOW and name != "string" else _size)
            for name in FILTERS
        }
        self.tests = {name: _paid(tests[name], _width if name in _SHALLOW else _size) for name in TESTS}

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if type(obj) is dict:  # a row, as nearly always: to ask for more takes as long as all the rest
            if argument in obj:
                return obj[argument]
        elif isinstance(obj, LoopContext) and argument in _LOOP:
            return getattr(obj, argument)
        elif isinstance(obj, Mapping) or (isinstance(obj, (str, list, tuple)) and isinstance(argument, (int, slice))):
            try:
                return obj[argument]
            except LookupError:
                pass
        return self.undefined(f"there is no field {argument!r}", name=str(argument))

    def call(self, __context: Context, __obj: Any, *arguments: Any, **named: Any) -> Any:
        if not isinstance(__obj, Macro) and getattr(__obj, "__self__", None) is not self.extensions[_Roles.identifier]:
            raise Forbidden("a template may call nothing but its own macros")
        for name in _JINJAS if named else ():
            named.pop(name, None)
        return __obj(*arguments, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if not all(type(value) in (int, float) for value in (left, right)):
            raise Forbidden("+ is for numbers; write texts one after the other")
        return left + right


_NOWHERE = {
    nodes.Include: "include", nodes.Import: "import", nodes.FromImport: "import", nodes.Extends: "extends",
    nodes.Block: "block", nodes.Concat: "~", nodes.Mul: "*", nodes.Pow: "**", nodes.Mod: "%",
}  # fmt: skip
"""What no template needs: other files, and texts that grow; by the name of the tag or operator."""
_SANDBOX = Sandbox()


def _count(tree: nodes.Template) -> None:
    """Have every loop and macro pay for each of its rounds, with the text and each node of code in it; and slices,
    comparisons and the conditions of loops for what they go through."""

    def asked(name: str, given: list[nodes.Expr]) -> nodes.Expr:
        return _SANDBOX.extensions[_Roles.identifier].call_method(name, [nodes.ContextReference(), *given])

    def step(amount: int) -> nodes.Expr:
        return asked("step", [nodes.Const(amount)])

    for part in list(tree.find_all((nodes.Getitem, nodes.Compare, nodes.For))):
        if isinstance(part, nodes.Getitem) and isinstance(part.arg, nodes.Slice):
            part.node = asked("sliced", [part.node])
        elif isinstance(part, nodes.Compare):
            part.expr = asked("compared", [part.expr])
            for operand in part.ops:
                operand.expr = asked("compared", [operand.expr])
        elif isinstance(part, nodes.For) and part.test is not None:
            part.test = nodes.Or(step(STEP), part.test)  # a step is nothing, so the test decides
    for node in tree.find_all(nodes.Stmt):
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock)):
            parts = node.find_all(nodes.Node)
            own = sum(len(part.data) if isinstance(part, nodes.TemplateData) else 1 for part in parts)
            node.body.insert(0, nodes.ExprStmt(step(STEP + own)))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A template ready to be rendered. ``needs``: the fields of the query that it reads without a default, ``optional``
    those with one; ``uses``: all names of fields in it; ``above``: the lines of the file before its text."""

    program: Program
    needs: frozenset[str]
    optional: frozenset[str]
    uses: frozenset[str]
    above: int = 0

    def render(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """Its turns; without role tags one turn of the user. Raises `UsageError` if it fails with these values."""
        state = _Rendering()
        try:
            rest = "".join(self.program.root_render_func(self.program.new_context({**values, _STATE: state})))
        except (Exception, RecursionError) as error:  # it is a program of somebody's
            lacks = isinstance(error, UndefinedError)
            fix = (
                "for a field that some rows lack: {{ shot.tier | default('') }}"
                if lacks
                else "correct the template there"
            )
            raise UsageError(_explained(error, self._line(error)), fix) from error
        if not state.turns:
            return (Message("user", rest),)
        if rest.strip():
            raise UsageError(
                f"text stands outside the turns of the template: {rest.strip()[:60]!r}",
                "write it between {% user %} and {% enduser %}, or between the tags of another role",
            )
        return tuple(state.turns)

    def _line(self, error: BaseException) -> int:
        """The line of the file in which it failed; 0 if that is not known."""
        lines = [at for frame, at in walk_tb(error.__traceback__) if frame.f_code.co_filename == PROGRAM]
        return self.program.get_corresponding_lineno(lines[-1]) + self.above if lines else 0


def _explained(error: BaseException, line: int = 0) -> str:
    text = error.message if isinstance(error, TemplateSyntaxError) else str(error)
    reason = " ".join((text or "").split())[:300] or type(error).__name__
    return f"the template fails{f', line {line}' * bool(line)}: {reason}"


@lru_cache(maxsize=64)
def compiled(source: str, above: int = 0) -> Compiled:
    """The program of a template's text, which stands in its file below so many lines. Raises `UsageError` if it is too
    long, malformed, names what does not exist, or does what no template may."""
    fix = "correct the template; icl-curate template show auto prints one that works"
    if len(source) > LONGEST:
        raise UsageError(f"the template has {len(source):,} characters, more than {LONGEST:,}", fix)
    try:
        tree = _SANDBOX.parse(source)
        for node in tree.find_all(tuple(_NOWHERE)):
            raise TemplateSyntaxError(f"{_NOWHERE[type(node)]} is not allowed in templates", node.lineno)
        if strange := sorted(meta.find_undeclared_variables(tree) - NAMES)[:3]:
            near = [name for one in strange for name in difflib.get_close_matches(one, NAMES, 1)]
            like = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(NAMES))}"
            verb = "do" if strange[1:] else "does"
            raise Forbidden(f"it names {', '.join(map(repr, strange))}, which {verb} not exist; {like}")
        needs, optional, uses = _fields(tree)
        _count(tree)
        code = _SANDBOX.compile(tree, PROGRAM, PROGRAM)
    except (TemplateError, RecursionError, SyntaxError, ValueError, MemoryError) as error:  # 5,000 digits
        line = error.lineno + above if isinstance(error, TemplateSyntaxError) else 0
        raise UsageError(_explained(error, line), fix) from error
    return Compiled(Program.from_code(_SANDBOX, code, {}), needs, optional, uses, above)


def _fields(tree: nodes.Template) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The fields of the query that are needed, those that are read where they are there, and all fields of anything. A
    macro or another name reads the query where it is given it; what has a default, or is asked whether it is defined,
    is not needed. Raises `Forbidden` where the query is used as a whole: what that reads could not be known."""
    macros: dict[str, list[nodes.Macro]] = {}
    for macro in tree.find_all(nodes.Macro):
        macros.setdefault(macro.name, []).append(macro)
    calls = [
        call for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Name) and call.node.name in macros
    ]
    given = [*_named(tree), *(pair for call in calls for pair in _arguments(macros, call))]
    queries, before = {"query"}, 0
    while before < len(queries):  # a macro may hand the query on
        before = len(queries)
        queries |= {to for to, value in given if isinstance(value, nodes.Name) and value.name in queries}
    parts: list[Any] = [*tree.find_all((nodes.Getattr, nodes.Getitem))]
    followed = {id(value) for _, value in given} | {id(part.node) for part in parts if _field(part)}
    written = [name for name in tree.find_all(nodes.Name) if name.name == "query"]
    if any(name.ctx != "load" for name in written):  # it names something else, too
        written = []
    for name in written:
        if id(name) not in followed:
            raise Forbidden(f"line {name.lineno}: the query is no text; name its fields, such as query.input")
    read = [field for node in tree.find_all(nodes.Expr) if (field := _field(node))]
    asked = [
        field
        for node in tree.find_all(nodes.Expr)
        if isinstance(node, (nodes.Filter, nodes.Test)) and node.name in ("default", "defined", "undefined")
        and (field := _field(node.node))
    ]  # fmt: skip
    of_query, optional = ({name for of, name in fields if of in queries} for fields in (read, asked))
    return frozenset(of_query - optional), frozenset(optional), frozenset(name for _, name in read)


def _named(tree: nodes.Template) -> Iterator[tuple[str, nodes.Expr]]:
    """What is given another name by ``set`` and ``with``, and what a macro takes if it is not given it."""
    pairs: list[tuple[Any, Any]]
    for node in tree.find_all((nodes.Assign, nodes.With, nodes.Macro)):
        if isinstance(node, nodes.Assign):
            pairs = [(node.target, node.node)]
        elif isinstance(node, nodes.With):
            pairs = [*zip(node.targets, node.values, strict=True)]
        elif isinstance(node, nodes.Macro):
            pairs = [*zip(reversed(node.args), reversed(node.defaults), strict=False)]
        yield from ((to.name, value) for to, value in pairs if isinstance(to, nodes.Name))


def _arguments(macros: Mapping[str, Sequence[nodes.Macro]], call: Any) -> Iterator[tuple[str, nodes.Expr]]:
    """What a call gives to the arguments of a macro of this name."""
    for macro in macros[call.node.name]:
        yield from ((to.name, value) for to, value in zip(macro.args, call.args, strict=False))
    yield from ((argument.key, argument.value) for argument in call.kwargs)


def _field(node: nodes.Node | None) -> tuple[str, str] | None:
    """What an expression such as ``query.name`` or ``query["name"]`` reads a field of, empty if that has no name, and
    which one; None for other expressions."""
    if isinstance(node, nodes.Getattr):
        name: object = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        name = node.arg.value
    else:
        return None
    return (node.node.name if isinstance(node.node, nodes.Name) else "", name) if isinstance(name, str) else None
