"""Prompts that LangChain saved."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...base.errors import UsageError, counted
from ..sandbox import LONGEST, ROLES
from .files import Beside, value_of
from .languages import Nunjucks, checked, fstring, mustache
from .pieces import END, QUERY, SHOTS, Draft, Items, Marks, Tag, Turn, Untranslatable


class LangChain:
    """A prompt as LangChain writes it: by ``save``, with ``_type``, or by ``dumps``, with ``lc``."""

    ROLES: Mapping[str, str] = {"Human": "user", "AI": "assistant", "System": "system", "Tool": "tool"}

    def __init__(self, files: Beside, draft: Draft) -> None:
        self.files, self.draft = files, draft

    def items(self, value: Mapping[str, Any]) -> Items:
        kind, said = _constructed(value)
        if kind == "RunnableSequence" and isinstance(said.get("first"), Mapping):
            return self.items(said["first"])
        if kind in ("few_shot", "FewShotPromptTemplate", "few_shot_with_templates", "FewShotPromptWithTemplates"):
            return [Turn("user", self._few_shot(said))]
        if kind in ("prompt", "PromptTemplate"):
            return [Turn("user", self._text(value))]
        if kind in ("chat", "ChatPromptTemplate", "StructuredPrompt"):
            items: Items = []
            if "schema_" in said:
                items.append(self.draft.todo("the schema of the answer is no part of a template"))
            messages = said.get("messages")
            if not isinstance(messages, list):
                raise self._malformed("messages")
            return items + [item for message in messages for item in self._message(message, said, len(messages))]
        raise UsageError(f"a prompt of the kind '{kind}' is not known", "save a few-shot prompt, a chat, or a text")

    def _malformed(self, name: str) -> UsageError:
        return UsageError(f"{self.files.path.name}: the prompt has no {name}", "save it again with LangChain")

    def _variable(self, said: Mapping[str, Any]) -> Callable[[str], str]:
        """How a variable is written: what is filled in already is a text."""
        filled = said.get("partial_variables")
        filled = filled if isinstance(filled, Mapping) else {}

        def say(name: str) -> str:
            if name in filled:
                if not isinstance(filled[name], str):
                    raise Untranslatable(f"what fills '{name}' is no text")
                return checked(filled[name])
            return Tag(f"{{{{ {self.draft.query(name)} }}}}")

        return say

    def _template(self, said: Mapping[str, Any], name: str = "template") -> str:
        if isinstance(path := said.get(f"{name}_path"), str):
            return checked(self.files.read(path)[1])
        text = said.get(name)
        if not isinstance(text, str):
            raise self._malformed(name)
        return checked(text)

    def _text(self, value: Mapping[str, Any], filled: Mapping[str, Any] | None = None) -> list[str]:
        """The pieces of a prompt that is one text."""
        said = _constructed(value)[1]
        say = self._variable(filled or said)
        text, form = self._template(said), said.get("template_format", "f-string")
        if form == "f-string":
            marks = Marks()
            return marks.pieces(fstring(text, say, self.draft, marks))
        if form == "mustache":
            return mustache(text, lambda name: self._bare(say(name)), self.draft)
        return Nunjucks(self.draft).pieces(text.removesuffix("\n"))

    @staticmethod
    def _bare(piece: str) -> str:
        """A variable as an expression, for a tag of its own."""
        return piece[3:-3] if isinstance(piece, Tag) else json.dumps(piece, ensure_ascii=False)

    def _shot(self, value: object) -> list[str]:
        """The pieces of a demonstration."""
        kind, said = _constructed(value)
        if kind == "ChatPromptTemplate" or not {"template", "template_path"} & said.keys():
            raise self._malformed("example_prompt")
        text, form, marks = self._template(said), said.get("template_format", "f-string"), Marks()
        if form == "f-string":
            return marks.pieces(fstring(text, lambda name: Tag(f"{{{{ {self._field(name)} }}}}"), self.draft, marks))
        if form == "mustache":
            return mustache(text, self._field, self.draft, "shot")
        raise UsageError(f"a demonstration in '{form}' is not known", "write it as an f-string")

    def _field(self, name: str) -> str:
        return self.draft.shot("shot", name)

    def _few_shot(self, said: Mapping[str, Any]) -> list[str]:
        """Prefix, demonstrations and suffix, with what stands between them. LangChain formats each with its own
        variables, and then what they came to once more."""
        marks, separator = Marks(), said.get("example_separator", "\n\n")
        example = said.get("example_prompt")
        if isinstance(path := said.get("example_prompt_path"), str):
            example = value_of(*self.files.read(path))
        if not isinstance(example, Mapping) or not isinstance(separator, str):
            raise self._malformed("example_prompt")
        if isinstance(given := said.get("examples"), list) and given:
            self.draft.notes.append(f"{counted(len(given), 'example')} of the file left out: index them as a pool")

        def part(name: str) -> str:
            value = said.get(name)
            if isinstance(value, Mapping):
                return marks.text(self._text(value, said))
            missing = value is None and f"{name}_path" not in said
            return "" if missing else self._template(said, name)

        prefix, suffix = part("prefix"), part("suffix")
        shot = marks.text(self._shot(example))
        if suffix:
            prefix, shot = prefix and prefix + separator, shot + separator
        elif prefix:
            shot = separator + shot
        else:
            shot = marks.text([Tag("{% if not loop.first %}"), separator, Tag("{% endif %}")]) + shot
        self.draft.loops = True
        if (form := said.get("template_format", "f-string")) != "f-string":
            raise UsageError(f"a few-shot prompt in '{form}' is not known", "save it with f-strings")
        whole = prefix + marks.mark(SHOTS) + shot + marks.mark(END) + suffix
        return marks.pieces(fstring(whole, self._variable(said), self.draft, marks))

    def _message(self, value: object, chat: Mapping[str, Any], count: int) -> Items:
        if not isinstance(value, Mapping):
            return [self.draft.todo(f"a message that is none: {str(value)[:80]}")]
        kind, said = _constructed(value)
        if kind == "MessagesPlaceholder":
            return self._placeholder(str(said.get("variable_name", "")))
        if kind == "FewShotChatMessagePromptTemplate":
            return self._few_shot_chat(value, said)
        role = self.ROLES.get(kind.partition("Message")[0], "")
        if kind.startswith("ChatMessage"):
            role = str(said.get("role"))
        if not role and count == 1:
            role = "user"
        items: Items = []
        if role not in ROLES:
            items, role = [self.draft.todo(f"the role of this message is not known: {role or kind}")], "user"
        inner = said.get("prompt")
        if isinstance(inner, Mapping):
            return [*items, Turn(role, self._text(inner, {**chat, **_partials(inner, chat)}))]
        if isinstance(inner, list) or not isinstance(said.get("content"), str):
            return [*items, self.draft.todo("a part of this message is no text"), Turn(role, [])]
        return [*items, Turn(role, [checked(said["content"])])]

    def _placeholder(self, name: str) -> Items:
        if name == self.draft.examples:
            self.draft.loops = True
            shot = [Turn("user", [Tag("{{ shot.input }}")]), Turn("assistant", [Tag("{{ shot.answer }}")])]
            return [SHOTS, *shot, END]
        if not re.search(r"history|messages", name):
            return [self.draft.todo(f"messages from '{name}', which a template does not have")]
        self.draft.notes.append(f"{name} is what was said before the query's question")
        content = [Tag("{{ turn.content }}")]
        return [
            Tag(f"{{% for turn in {QUERY}.turns[:-1] %}}"),
            Tag('{% if turn.role == "assistant" %}'), Turn("assistant", content),
            Tag("{% else %}"), Turn("user", content), Tag("{% endif %}"), END,
        ]  # fmt: skip

    def _few_shot_chat(self, value: Mapping[str, Any], said: Mapping[str, Any]) -> Items:
        """Demonstrations as turns. LangChain saves them as Python would show them, and their texts are in quotes."""
        inner = _constructed(said.get("example_prompt"))[1].get("messages")
        shown = [
            (_constructed(message)[0], _constructed(message)[1].get("prompt"))
            for message in (inner if isinstance(inner, list) else ())
        ]
        if not shown:
            shown = [*_quoted(str(value.get("repr", "")).rpartition("example_prompt=")[2])]
        if not shown:
            return [self.draft.todo("demonstrations as turns, of which the file does not say how they are written")]
        self.draft.loops = True
        roles = [self.ROLES.get(kind.partition("Message")[0], "user") for kind, _ in shown]
        return [SHOTS, *(Turn(role, self._shot(prompt)) for role, (_, prompt) in zip(roles, shown, strict=True)), END]


def _partials(inner: Mapping[str, Any], chat: Mapping[str, Any]) -> dict[str, Any]:
    both = [_constructed(inner)[1].get("partial_variables"), chat.get("partial_variables")]
    return {
        "partial_variables": {name: text for part in both if isinstance(part, Mapping) for name, text in part.items()}
    }


def _constructed(value: object) -> tuple[str, Mapping[str, Any]]:
    """The kind of a saved object and what it was made of."""
    if not isinstance(value, Mapping):
        return "", {}
    if "lc" not in value:
        return str(value.get("_type", "")), value
    names, made = value.get("id"), value.get("kwargs")
    return str(names[-1]) if isinstance(names, list) and names else "", made if isinstance(made, Mapping) else {}


_REPR = re.compile(
    r"(\w{1,20})MessagePromptTemplate\(prompt=PromptTemplate\(.{0,2000}?\btemplate="
    r"('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")(?:, template_format='([\w-]+)')?"
)


def _quoted(shown: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Kinds and prompts of messages, from how Python shows them."""
    for kind, quoted, form in _REPR.findall(shown[: 4 * LONGEST]):
        try:
            yield kind, {"template": ast.literal_eval(quoted), "template_format": form or "f-string"}
        except (ValueError, SyntaxError):  # Python shows no text so
            return
