"""Texts and chats with tags of Nunjucks, as promptfoo and others have them: as a text, as JSON, as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from ..sandbox import ROLES
from .files import yaml_of
from .languages import COMPACT, Nunjucks, checked
from .pieces import Draft, Items, Marks, Tag, Turn

SETTINGS = ("tools", "functions", "response_format")
"""What stands beside the messages of a request, and is no text."""


def settings(given: Mapping[str, object], of: str, draft: Draft) -> Items:
    """Comments on what a request, or a server's config, has beside its messages."""
    shown = {name: as_json(given[name]) for name in SETTINGS if name in given}
    return [draft.todo(f"{name}{of} is no part of a template: {text}") for name, text in shown.items()]


def as_json(value: object) -> str:
    """The beginning of a value of JSON or YAML, for a comment."""
    return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)[:2000]


def chat(text: str, draft: Draft) -> Items:
    """A text: a chat if it is one as JSON or YAML, as it stands or once it is filled; else one message of the user."""
    bare = text.strip()
    if bare.startswith("- role:") and isinstance(value := yaml_of("the prompt", text), list):
        return messages(value, draft)
    if bare.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            value = value["messages"]
        if isinstance(value, list) and all(isinstance(message, Mapping) and "role" in message for message in value):
            return messages(value, draft)
    pieces = Nunjucks(draft).pieces(checked(text))
    if re.match(r"\[\s*(\{\s*\"|\{%|\{#)", bare) and '"role"' in bare:
        marks = Marks()
        if (items := _elements(marks.text(pieces), marks, draft)) is not None:
            return items
        return [draft.todo("this looks like messages as JSON, but is none"), Turn("user", pieces)]
    return [Turn("user", pieces)]


def messages(value: Sequence[object], draft: Draft) -> Items:
    """Messages whose texts have tags, each on its own."""
    items: Items = []
    for message in value:
        items += _message(message, draft, lambda text: Nunjucks(draft).pieces(checked(text)))
    return items


def _message(message: object, draft: Draft, pieces: Callable[[str], Sequence[str]]) -> Items:
    """A message of a chat, and a comment on what it has beside its text."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return [draft.todo(f"a message without a role: {str(message)[:80]}")]
    role, content = message["role"], message.get("content")
    items: Items = []
    if role not in ROLES:
        items.append(draft.todo(f"the role '{role}' is none of {', '.join(ROLES)}; it is written as the user's"))
        role = "user"
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        if len(texts) < len(content):
            items.append(draft.todo("a part of this message is no text"))
        content = "".join(texts)
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            items.append(draft.todo(f"{name} of this message is no text: {as_json(message[name])}"))
    if not isinstance(content, str):
        content = ""
    return [*items, Turn(role, pieces(content))]


def _elements(source: str, marks: Marks, draft: Draft) -> Items | None:
    """The messages of a list of JSON and the tags between them, each tag as one character; None if it is no list."""
    items: Items = []
    at = source.index("[") + 1
    while at < len(source):
        character = source[at]
        if character.isspace() or character in ",]":
            at += 1
        elif isinstance(piece := marks.pieces(character)[0], Tag):
            at += 1
            if items and isinstance(items[-1], Tag) and _BEGIN.match(items[-1]) and _END.match(piece):
                items.pop()  # {% if not loop.last %},{% endif %}
            else:
                items.append(piece)
        else:
            text, at = _object(source, at, marks)
            try:
                message = json.loads(text, strict=False)
            except (ValueError, RecursionError):
                return None
            items += _message(message, draft, marks.pieces)
    return items


_BEGIN, _END = re.compile(r"\{%-?\s*(if|for)\b"), re.compile(r"\{%-?\s*end")


def _object(source: str, at: int, marks: Marks) -> tuple[str, int]:
    """The object of JSON that begins at a place, with the tags that stand for its values as texts; and its end."""
    text, depth, quoted = "", 0, False
    while at < len(source):
        character = source[at]
        tag = not quoted and marks.pieces(character)[0]
        if quoted and character == "\\":
            character += source[at + 1 : at + 2]
        elif character == '"':
            quoted = not quoted
        elif isinstance(tag, Tag):  # a value: what was dumped is the text itself
            character = f'"{marks.mark(Tag(tag.replace(f" | {COMPACT}", "")))}"'
        text += character
        at += len(character) if not isinstance(tag, Tag) else 1
        depth += (not quoted) * ((character == "{") - (character == "}"))
        if not depth:
            break
    return text, at
