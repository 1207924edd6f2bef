"""Texts of other template languages as pieces of ours: Nunjucks, f-strings and Mustache."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jinja2 import Environment, TemplateSyntaxError

from ...base.errors import UsageError
from ..sandbox import FILTERS, LONGEST, NAMES, TESTS
from .pieces import MARKS, QUERY, Draft, Marks, Tag, Untranslatable

# --- Nunjucks, which differs little from Jinja

_BEGIN = re.compile(r"\{%-?\s*(raw|verbatim)\s*-?%\}|\{[{%#]")
_STRING = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_WHOLE = {
    "{{": re.compile(rf"\{{\{{(?:[^\"'}}]|\}}(?!\}})|{_STRING})*+\}}\}}", re.DOTALL),
    "{%": re.compile(rf"\{{%(?:[^\"'%]|%(?!\}})|{_STRING})*+%\}}", re.DOTALL),
    "{#": re.compile(r"\{#(?:[^#]|#(?!\}))*+#\}"),
    "raw": re.compile(r"\{%-?\s*endraw\s*-?%\}"),
    "verbatim": re.compile(r"\{%-?\s*endverbatim\s*-?%\}"),
}
"""Tags, by what they begin with, and what ends a text without tags."""
_LEXER = Environment()
_CONSTANTS = {"null": "none"} | {name: name for name in ("true", "false", "none", "True", "False", "None")}
_WORDS = frozenset({"and", "or", "not", "in", "is", "if", "else"})
_FILTERS = {"d": "default", "count": "length"}
COMPACT = "tojson(compact=true)"
"""What JavaScript writes as JSON has no blanks."""
_LOOP = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0"})
Word = tuple[str, str, str]
"""The blanks before a token, its kind, and its text."""


@dataclass(slots=True)
class Nunjucks:
    """One text in Nunjucks, or in Jinja as others write it. ``scopes``: what the loops and macros around a tag define,
    each with what ends it; the value of a name is ``shot`` if it is a demonstration."""

    draft: Draft
    scopes: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def pieces(self, text: str) -> list[str]:
        """Its pieces, with a comment in the place of each tag that cannot be translated. Raises `UsageError` if a tag
        does not end."""
        pieces: list[str] = []
        at, trims = 0, False  # whether a tag took the blanks after it away
        while begin := _BEGIN.search(text, at):
            whole = _WHOLE[begin[1] or begin[0]]
            tag = whole.search(text, begin.end()) if begin[1] else whole.match(text, begin.start())
            if tag is None:
                raise UsageError(f"a tag of the prompt does not end: {text[begin.start() :][:40]!r}", "end it")
            literal = text[at : begin.start()]
            literal = literal.lstrip() if trims else literal
            at, trims = tag.end(), tag[0].endswith(("-%}", "-}}"))
            pieces.append(literal.rstrip() if text.startswith("-", begin.start() + 2) else literal)
            if begin[1]:
                pieces.append(text[begin.end() : tag.start()])
            elif begin[0] == "{#":
                pieces.append(Tag(tag[0].replace("\r", "")))
            else:
                pieces += self._tag(re.sub(r"^(..)-|-(..)$|\r", r"\1\2", tag[0]))
        pieces.append(text[at:].lstrip() if trims else text[at:])
        return [piece for piece in pieces if piece]

    def _tag(self, tag: str) -> list[str]:
        try:
            (_, _, begin), *tokens, (_, _, end) = _LEXER.lex(tag)
        except (TemplateSyntaxError, ValueError) as error:
            return [self.draft.todo(f"{tag}: {error}")]
        words, lead = [], ""
        for _, kind, value in tokens:
            if kind == "whitespace":
                lead = value
            else:
                words.append((lead, kind, value))
                lead = ""
        say = self._statement if begin[1] == "%" else self._shown
        try:
            return [Tag(begin + say(words) + lead + end)]
        except Untranslatable as error:
            comment = self.draft.todo(f"{tag}: {error}")
            instead = self._instead([value for _, _, value in words]) if begin[1] == "%" else ""
            return [comment, *([Tag(f"{begin} {instead} {end}")] if instead else [])]

    def _instead(self, words: Sequence[str]) -> str:
        """A statement that keeps what belongs together together."""
        if words[:1] in (["if"], ["elif"], ["elseif"]):
            return "if true" if words[0] == "if" else "elif true"
        if words[:1] == ["for"]:
            names = [word for word in words[1 : words.index("in")] if word != ","] if "in" in words else ["item"]
            self.scopes.append(("endfor", dict.fromkeys([*names, "loop"], "")))
            return f"for {', '.join(names)} in []"
        if words[:1] == ["set"] and words[2:3] == ["="]:
            self.scopes.insert(0, ("", {words[1]: ""}))
            return f'set {words[1]} = ""'
        return ""

    def _shown(self, words: Sequence[Word]) -> str:
        plain = [value for _, _, value in words]
        if plain[:1] == [self.draft.examples] and plain[1:3] not in ([".", "length"], ["|", "length"]):
            raise Untranslatable("it does not say how one demonstration is written; loop over shots here")
        return self._expression(words)

    def _statement(self, words: Sequence[Word]) -> str:
        lead, _, name = words[0] if words else ("", "", "")
        rest = words[1:]
        if name in ("if", "elif", "elseif"):
            return f"{lead}{'if' if name == 'if' else 'elif'}{self._expression(rest, optional=True)}"
        if name in ("else", "endif", "endfor", "endset", "endmacro"):
            if self.scopes and self.scopes[-1][0] == name:
                self.scopes.pop()
            return lead + name
        if name not in ("for", "set", "macro"):
            raise Untranslatable(f"templates have no tag '{name}'")
        return lead + name + {"for": self._loop, "set": self._set, "macro": self._macro}[name](rest)

    def _loop(self, words: Sequence[Word]) -> str:
        plain = [value for _, _, value in words]
        if plain[1:2] != ["in"]:
            raise Untranslatable("a loop here has one variable")
        if plain[0] in NAMES:
            raise Untranslatable(f"'{plain[0]}' is a name of templates; rename the variable")
        shots = plain[2:3] == [self.draft.examples]
        said = self._expression(words[2:], optional=True, of="list")
        self.draft.loops |= shots
        self.scopes.append(("endfor", {plain[0]: "shot" if shots else "", "loop": ""}))
        return f" {plain[0]} in{said}"

    def _set(self, words: Sequence[Word]) -> str:
        if any(end == "endfor" for end, _ in self.scopes):
            raise Untranslatable("what is set in a loop is gone after it")
        if not words or (len(words) > 1 and words[1][2] != "="):
            raise Untranslatable("one variable is set at a time")
        said = f" {words[0][2]}" + (f" ={self._expression(words[2:])}" if len(words) > 1 else "")
        self.scopes.insert(0, ("", {words[0][2]: ""}))
        return said

    def _macro(self, words: Sequence[Word]) -> str:
        name, *names = [value for _, kind, value in words if kind == "name"] or [""]
        self.scopes.insert(0, ("", {name: "macro"}))
        self.scopes.append(("endmacro", dict.fromkeys(names, "")))
        return "".join(lead + value for lead, _, value in words)

    def _expression(self, words: Sequence[Word], optional: bool = False, of: str = "text") -> str:
        """An expression, variables as fields of the query. ``optional``: what is not there is false, as in a condition;
        ``of``: what kind of value it has. Raises `Untranslatable`."""
        said: list[str] = []
        at = 0
        while at < len(words):
            lead, kind, value = words[at]
            before, near = words[at - 1][2] if at else "", [word for _, _, word in words[at + 1 : at + 4]]
            said.append(lead)
            at += 1
            if kind == "operator":
                texts = value == "+" and "string" in (words[at - 2][1], words[at][1] if at < len(words) else "")
                if texts or value in ("~", "*", "**", "%"):
                    raise Untranslatable(f"{value} makes texts longer, which no template may")
                said.append("" if value == "=" and before in ("==", "!=") else value)  # === and !==
            elif kind != "name":
                said.append(value)
            elif before == "|":
                at += self._filter(value, near, said)
            elif before == ".":
                if near[:1] == ["("]:
                    raise Untranslatable(f"{value}() calls a program")
                said[-2:] = [" | length"] if value == "length" and words[at - 3][2] != "loop" else [".", value]
            elif value in _WORDS or value in _CONSTANTS or (near[:1] == ["="] and before in ("(", ",")):
                said.append(_CONSTANTS.get(value, value))
            elif before == "is":
                if value not in TESTS:
                    raise Untranslatable(f"there is no test '{value}'")
                said.append(value)
            else:
                text, used = self._variable(value, near, of)
                said.append(text)
                at += used
                if optional and self._local(value) is None and value != self.draft.examples:
                    at = self._default(words, at, said, "[]" if of == "list" else '""')
        try:
            _LEXER.parse(f"{{{{ {''.join(said).replace(QUERY, 'query')} }}}}")
        except TemplateSyntaxError as error:
            raise Untranslatable(str(error)) from error
        return "".join(said)

    def _default(self, words: Sequence[Word], at: int, said: list[str], value: str) -> int:
        """Say the attributes of a variable, and what it is if it is not there; returns the place of what follows."""
        while len(words) > at + 1 and words[at][2] == "." and words[at + 1][2] != "length":
            if [word for _, _, word in words[at + 2 : at + 3]] == ["("]:
                raise Untranslatable(f"{words[at + 1][2]}() calls a program")
            said += [".", words[at + 1][2]]
            at += 2
        after = [word for _, _, word in words[at : at + 2]]
        if after[:1] not in (["is"], ["["]) and after not in (["|", "default"], ["|", "d"]):
            said.append(f" | default({value})")
        return at

    def _filter(self, name: str, near: Sequence[str], said: list[str]) -> int:
        """Say a filter; returns how many tokens after its name were said with it."""
        name = _FILTERS.get(name, name)
        if name == "safe":  # nothing is escaped
            del said[-3:]
        elif name == "dump":
            if near[:1] != ["("]:
                said.append(COMPACT)
            elif near[1].isdigit() and near[2:] == [")"]:
                said.append(f"tojson(indent={near[1]})")
                return 3
            else:
                raise Untranslatable("JSON is indented by a number of blanks")
        elif name in FILTERS and name != "title":  # which begins other words in Nunjucks
            said.append(name)
        else:
            raise Untranslatable(f"there is no filter '{name}'")
        return 0

    def _local(self, name: str) -> str | None:
        return next((names[name] for _, names in reversed(self.scopes) if name in names), None)

    def _variable(self, name: str, near: Sequence[str], of: str) -> tuple[str, int]:
        """A variable, and how many tokens after it were said with it."""
        local = self._local(name)
        if near[:1] == ["("] and local != "macro":
            raise Untranslatable(f"{name}() calls a program")
        if local == "shot":
            if near[:1] == ["."] and len(near) > 1 and near[2:3] != ["("]:
                return self.draft.shot(name, near[1]), 2
            if near[:1] == ["["] and near[2:3] == ["]"] and near[1][:1] in ("'", '"'):
                return self.draft.shot(name, near[1][1:-1]), 3
            raise Untranslatable(f"{name} is a demonstration; name its fields, such as {name}.input")
        if local is not None:
            if name == "loop" and near[1:2] and near[1] not in _LOOP:
                raise Untranslatable(f"there is no loop.{near[1]}")
            return name, 0
        if name == self.draft.examples:
            return "shots", 0
        if name == "env":
            raise Untranslatable("it reads the environment, which no template can")
        if name == "_conversation":
            raise Untranslatable("what was said before is {% for turn in query.turns[:-1] %} here")
        parted = near[:1] in (["."], ["["]) and near[1:2] != ["length"]
        return self.draft.query(name, "table" if parted else of), 0


# --- f-strings, as LangChain reads them


def fstring(text: str, said: Callable[[str], str], draft: Draft, marks: Marks) -> str:
    """An f-string with a mark for each variable, which is ``said`` as a piece. Raises `UsageError` if it is none."""
    try:
        parts = [*string.Formatter().parse(text)]
    except ValueError as error:
        raise UsageError(f"the template is no f-string: {error}", "write literal braces as {{ and }}") from error
    out = ""
    for literal, name, form, conversion in parts:
        out += literal
        if name is None:
            continue
        whole = "{" + name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "") + "}"
        try:
            if form or conversion or not name or re.search(r"[.\[\]]", name) or name.isdigit():
                raise Untranslatable("it is formatted, and templates write texts as they are")
            out += marks.mark(said(name))
        except Untranslatable as error:
            out += marks.mark(draft.todo(f"{whole}: {error}"))
    return out


# --- Mustache, as LangChain reads it

_MUSTACHE = re.compile(r"\{\{(?:\{(?P<raw>[^{}]*)\}\}\}|(?P<kind>[#^/!&>=]?)(?P<key>[^{}]*)\}\})")


def _mustache(text: str) -> Iterator[tuple[str, str]]:
    """Kinds and keys of its tags, and its literals. A section's tag that stands alone in a line takes the line with
    it."""
    at, alone = 0, True
    for tag in _MUSTACHE.finditer(text):
        literal, kind = text[at : tag.start()], "&" if tag["raw"] is not None else tag["kind"] or "$"
        padding = literal.rpartition("\n")[2]
        alone = ("\n" in literal or alone) and not padding.strip()
        rest = text[tag.end() :].partition("\n")
        alone = alone and kind in "#^/!>=" and not rest[0].strip()
        at = tag.end()
        if alone:
            literal = literal.rstrip(" ")
            at += len(rest[0]) + len(rest[1])
        yield "", literal
        yield kind, (tag["raw"] or tag["key"] or "").strip()
    yield "", text[at:]


def mustache(text: str, said: Callable[[str], str], draft: Draft, shot: str = "") -> list[str]:
    """The pieces of a Mustache text, whose variables are ``said``; within a section of the demonstrations, and
    everywhere if ``shot`` names one, they are its fields. Raises `UsageError` if a section does not end."""
    pieces: list[str] = []
    open_: list[tuple[str, str]] = []  # keys of sections, and what they define
    parts = list(_mustache(text))
    lists = _lists(parts)
    for at, (kind, key) in enumerate(parts):
        try:
            if not kind:
                pieces.append(key)
            elif kind in "$&":
                pieces.append(_value(kind, key, said, draft, open_, shot))
            elif kind in "#^":
                name, tag = _section(kind, key, said, draft, at in lists)
                open_.append((key, name))
                pieces.append(Tag(tag))
            elif kind == "/":
                if not open_ or open_[-1][0] != key:
                    raise UsageError(f"the section {key!r} of the template ends, but did not begin", "correct it")
                pieces.append(Tag("{% endfor %}" if open_.pop()[1] else "{% endif %}"))
            elif kind != "!":
                raise Untranslatable("templates include nothing, and have one kind of tag")
        except Untranslatable as error:
            pieces.append(draft.todo(f"{{{{{kind.strip('$')}{key}}}}}: {error}"))
            if kind in "#^":
                open_.append((key, ""))
                pieces.append(Tag("{% if true %}"))
    if open_:
        raise UsageError(f"the section {open_[-1][0]!r} of the template does not end", "end it with {{/" + open_[-1][0])
    return [piece for piece in pieces if piece]


def _lists(parts: Sequence[tuple[str, str]]) -> set[int]:
    """The places of sections that write their items, as ``{{.}}``."""
    lists: set[int] = set()
    within: list[int] = []
    for at, (kind, key) in enumerate(parts):
        if kind and kind in "#^":
            within.append(at)
        elif kind == "/" and within:
            within.pop()
        elif kind and kind in "$&" and key == "." and within:
            lists.add(within[-1])
    return lists


def _value(
    kind: str, key: str, said: Callable[[str], str], draft: Draft, open_: Sequence[tuple[str, str]], shot: str
) -> Tag:
    around = shot or next((name for _, name in reversed(open_) if name), "")
    if key == ".":
        if not around or around == "shot":
            raise Untranslatable("there is no item to be written")
        value = around
    elif key == draft.examples:
        raise Untranslatable("it does not say how one demonstration is written")
    else:
        value = draft.shot("shot", key) if around == "shot" else _path(key, said)
    draft.escapes |= kind == "$"
    return Tag(f"{{{{ html({value}) }}}}" if kind == "$" else f"{{{{ {value} }}}}")


def _path(key: str, said: Callable[[str], str]) -> str:
    name, dot, rest = key.partition(".")
    if dot and not re.fullmatch(r"\w+(\.\w+)*", rest):
        raise Untranslatable("it is no name")
    return said(name) + dot + rest


def _section(kind: str, key: str, said: Callable[[str], str], draft: Draft, items: bool) -> tuple[str, str]:
    """What a section defines, and the tag that begins it."""
    if key == draft.examples and kind == "#":
        draft.loops = True
        return "shot", "{% for shot in shots %}"
    if key == draft.examples:
        return "", "{% if not shots %}"
    value = _path(key, said)
    if kind == "^":
        return "", f'{{% if not {value} | default("") %}}'
    if items:
        return "item", f"{{% for item in {value} | default([]) %}}"
    draft.notes.append(f"the section {key} is read as a condition")
    return "", f'{{% if {value} | default("") %}}'


def checked(text: str) -> str:
    """The text. Raises `UsageError` if it is too long, or has a character that marks use."""
    if len(text) > LONGEST:
        raise UsageError(f"the prompt has {len(text):,} characters, more than {LONGEST:,}", "import a smaller one")
    if MARKS.search(text):
        raise UsageError("the prompt contains characters for private use (U+F0000 and up)", "take them out")
    return text
