"""A template of another tool on its way to one of ours: texts and tags, what they name, and what could not be said."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ...base.errors import UsageError
from ...pool.records import TELLING

QUERY = "\U000ffffd"
"""Stands for the row that a text is written of."""
_MARK = 0xF0000
MARKS = re.compile("[\U000f0000-\U000ffffd]")
"""Characters for private use, which stand for tags and must not be in a text."""
HIDDEN = frozenset({"turns", "role", "earlier", "opening"})
"""Names that a query has for other things."""
INPUTS = ("input", "question", "query", "prompt", "text", "utterance", "sentence", "problem", "message", "q")
OUTPUTS = ("output", "answer", "label", "target", "completion", "response", "intent", "category", "solution", "a")
"""Names that variables with the input and with the output have, likeliest first."""
_HAZARD = re.compile(r"\{(?=[{%#\r])|\{\Z|\r")


class Tag(str):
    """A tag of Jinja's among the pieces of a text; the others are literal."""

    __slots__ = ()


class Untranslatable(Exception):
    """A tag says what no template of ours can."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message: its role and the pieces of its text."""

    role: str
    pieces: Sequence[str]


Items = list[Turn | Tag]
"""Turns, and tags between them."""


def jinja(pieces: Iterable[str]) -> str:
    """The text of a template that writes these pieces as they are: Jinja drops the first line end after a tag, and the
    blanks before one that begins a line, and takes a carriage return for a line end."""
    source = literal = ""
    for piece in (*pieces, Tag()):
        if not isinstance(piece, Tag):
            literal += piece
            continue
        block = source.endswith(("%}", "#}"))
        starts = "\n" in literal or source.endswith("\n")
        indented = starts and literal.rpartition("\n")[2] and not literal.rpartition("\n")[2].strip()
        source += "\n" * (block and literal.startswith("\n")) + _HAZARD.sub(_spelled, literal)
        plain = piece[:2] in ("{%", "{#") and piece[2] not in "-+"
        source += f"{piece[:2]}+{piece[2:]}" if indented and plain else piece
        literal = ""
    return source


def _spelled(hazard: re.Match[str]) -> str:
    return '{{ "{" }}' if hazard[0] == "{" else '{{ "\\r" }}'


@dataclass(slots=True)
class Marks:
    """Tags of a text as one character each, so that it can be read as a text of another format."""

    tags: list[str] = field(default_factory=list)

    def mark(self, piece: str) -> str:
        if len(self.tags) > 50_000:
            raise UsageError("the prompt has more than 50,000 tags", "import a smaller one")
        self.tags.append(piece)
        return chr(_MARK + len(self.tags) - 1)

    def text(self, pieces: Iterable[str]) -> str:
        """These pieces as one text with marks."""
        return "".join(self.mark(piece) if isinstance(piece, Tag) else piece for piece in pieces)

    def pieces(self, text: str) -> list[str]:
        """The text with its tags again."""
        parts = re.split(f"([{chr(_MARK)}-{chr(_MARK + 50_000)}])", text)
        return [self.tags[ord(part) - _MARK] if i % 2 else part for i, part in enumerate(parts) if part]


@dataclass(slots=True)
class Draft:
    """What a template came to say while it was translated.

    ``examples`` names the variable that holds the demonstrations, ``input`` the one of the query that is its input,
    ``given`` and ``output`` those of a demonstration that are its input and output. ``asked``: the variables of the
    query, and how they are read (``text``, ``table`` or ``list``); ``shown``: those of a demonstration. ``loops``: it
    says where the demonstrations stand. ``escapes``: it needs the macro that escapes HTML.
    """

    examples: str = "examples"
    input: str = ""
    given: str = ""
    output: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    shown: dict[str, None] = field(default_factory=dict)
    todos: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    loops: bool = False
    escapes: bool = False

    def todo(self, what: str) -> Tag:
        """A comment at the place of what cannot be translated."""
        self.todos.append(" ".join(MARKS.sub("", what).split()))
        return Tag("{# TODO: " + self.todos[-1].replace("#}", "# }") + " #}")

    def query(self, name: str, kind: str = "text") -> str:
        """A variable of the query. Raises `Untranslatable` if no template reads it."""
        if name.lower() in TELLING:
            raise Untranslatable(f"'{name}' of the query is never shown: it is the answer, or says it")
        if name in HIDDEN:
            raise Untranslatable(f"a field '{name}' is hidden by what a query has under this name; rename it")
        if self.asked.get(name, "text") == "text":
            self.asked[name] = kind
        return QUERY + field_of("input" if name == self.input else name)

    def shot(self, variable: str, name: str) -> str:
        """A field of a demonstration."""
        self.shown[name] = None
        return variable + field_of({self.given: "input", self.output: "answer"}.get(name, name))

    def settled(self) -> Draft:
        """A draft to begin again with, now that all variables are known: which are the input and the output."""
        shared = [name for name in self.shown if name in self.asked]
        ours = self.input or first(INPUTS, self.asked) or (shared[0] if len(shared) == 1 else "")
        if not ours and len(self.asked) == 1:
            ours = next(iter(self.asked))
        given = ours if ours in self.shown else first(INPUTS, self.shown)
        left = [name for name in self.shown if name != given and name not in self.asked]
        if not given and left and (len(left) == 2 or left[0] not in OUTPUTS):
            given = left.pop(0)
        return Draft(self.examples, ours, given, left[0] if len(left) == 1 else first(OUTPUTS, left))


def field_of(name: str) -> str:
    return f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f"[{json.dumps(name, ensure_ascii=False)}]"


def first(names: Iterable[str], among: Collection[str]) -> str:
    return next((name for name in names if name in among), "")


SHOTS = Tag("{% for shot in shots %}")
END = Tag("{% endfor %}")


def template(items: Sequence[Turn | Tag], draft: Draft) -> str:
    """The text of a template of ours: turns, and tags between them. Where nothing says where the demonstrations stand,
    they are turns before the last question."""
    lines = [_HTML] if draft.escapes else []
    last = max((i for i, item in enumerate(items) if isinstance(item, Turn) and item.role == "user"), default=-1)
    if not draft.loops and last < 0:
        lines.append(draft.todo("there is no user message, so the demonstrations have no place") + "\n")
    for i, item in enumerate(items):
        if not isinstance(item, Turn):
            lines.append(item + "\n")
        elif draft.loops or i != last:
            lines.append(_turn(item.role, item.pieces))
        else:
            question = item.pieces
            if len(question) != 1 or not isinstance(question[0], Tag):
                macro = jinja([Tag("{% macro question(row) %}\n"), *question, Tag("{% endmacro %}")])
                lines.insert(int(draft.escapes), macro.replace(QUERY, "row") + "\n")
                question = [Tag(f"{{{{ question({QUERY}) }}}}")]
            shown = _turn("user", question, "shot") + _turn("assistant", [Tag("{{ shot.answer }}")])
            lines += [f"{SHOTS}\n{shown}{END}\n", _turn("user", question)]
    return "".join(lines).replace(QUERY, "query")


def _turn(role: str, pieces: Sequence[str], row: str = QUERY) -> str:
    long = any("\n" in piece for piece in pieces if not isinstance(piece, Tag))
    begin, end = Tag(f"{{% {role} %}}" + "\n" * long), Tag(f"{{% end{role} %}}")
    return jinja([begin, *pieces, end]).replace(QUERY, row) + "\n"


_HTML = """\
{% macro html(text) %}
{{ text | string | replace("&", "&amp;") | replace('"', "&quot;") | replace("<", "&lt;") | replace(">", "&gt;") }}
{%- endmacro %}
"""
"""Mustache escapes what it writes."""
