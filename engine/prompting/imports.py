"""Prompts of promptfoo, LangChain and DSPy as templates of ours. Their files are data: nothing in them is run, and no
file is read that does not lie beside them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import UsageError, counted
from ..base.files import open_regular
from ..pool.records import Demonstration, Query
from .languages import COMPACT, Nunjucks, carried, fstring, mustache
from .pieces import END, INPUTS, QUERY, SHOTS, Draft, Marks, Tag, Turn, Untranslatable, first, template
from .sandbox import LONGEST, ROLES
from .template import OPEN, FileTemplate

LARGEST = 8 << 20
"""Bytes of a file that is imported."""
NODES = 200_000
"""Values of a YAML file, its aliases written out."""
DEEPEST = 100
"""Levels of it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A template of ours; what could not be translated, each with a comment ``TODO`` at its place; and what to know."""

    source: str
    todos: tuple[str, ...]
    notes: tuple[str, ...]


def import_template(path: Path, prompt: int = 1, examples: str = "examples", input: str = "") -> Imported:
    """The template for prompt number ``prompt`` in a file: a config of promptfoo, a prompt that LangChain saved, the
    state of a DSPy program, a chat as JSON, or one text with ``{{ variables }}``.

    ``examples`` names the variable that holds the demonstrations, ``input`` the one that is the query's input; if not
    given, a name such as ``question`` or the only one. The template compiles. Raises `UsageError` if the file is none
    of these, is malformed or too large, or names a file that does not lie beside it.
    """
    reader = _Reader(path, prompt)
    value = reader.value()
    first_time = Draft(examples, input)
    reader.read(value, first_time)
    draft = first_time.settled()
    items = reader.read(value, draft)
    draft.notes += [f"{name} is the query's input" for name in [draft.input] if name not in ("", "input")]
    if draft.asked and draft.input not in draft.asked:
        draft.notes.append("no variable is the query's input; if one is, name it: --input VAR")
    if draft.given not in ("", "input", draft.input) or draft.output not in ("", "output"):
        draft.notes.append(f"of a demonstration, {draft.given or 'input'} is its input and {draft.output} its output")
    fields = [name for name in draft.asked if name not in (draft.input, "context", "options", "input")]
    if fields:
        draft.notes.append(f"fields of each query: {', '.join(fields)}")
    if not draft.loops:
        draft.notes.append(
            f"no loop over '{examples}', so the demonstrations are turns before the last question; "
            "if they are in another variable: --examples VAR"
        )
    source = reader.head + template(items, draft)
    if failed := _tried(source, draft):
        draft.notes.append(f"it could not be tried with made-up values: {failed}; try it with a query of yours")
    return Imported(source, tuple(draft.todos), tuple(dict.fromkeys(draft.notes)))


class _Any(dict[str, Any]):
    """A table that has every field."""

    def __missing__(self, name: str) -> str:
        return name


def _tried(source: str, draft: Draft) -> str:
    """Compile a template and render it with made-up values: what fails, or nothing. Raises `UsageError` if it does not
    compile."""
    ours = FileTemplate(source)
    _ = ours.reads, ours.form
    row = {name: name for name in (*draft.asked, *draft.shown)}
    shots = [Demonstration(i, str(i), "input", "output", "source", metadata=row) for i in range(2)]
    failed = ""
    for text in ("text", 3):  # a condition may compare numbers
        values = {"text": text, "table": _Any(), "list": [_Any()]}
        try:
            ours.render(Query("input", fields={name: values[kind] for name, kind in draft.asked.items()}), shots, OPEN)
        except UsageError as error:
            failed = failed or error.what
        else:
            return ""
    return failed


Items = list[Turn | Tag]


class _Reader:
    """One file, and those beside it."""

    def __init__(self, path: Path, prompt: int) -> None:
        self.path, self.prompt, self.head = path, prompt, ""

    def value(self) -> object:
        """What the file holds: the value of its JSON or YAML, or its text."""
        return _parsed(self.path, _text(self.path, LARGEST))

    def beside(self, name: str) -> Path:
        """A file that this one names. Raises `UsageError` if it lies elsewhere."""
        base = self.path.parent.resolve()
        path = (base / name.removeprefix("file://")).resolve()
        if not path.is_relative_to(base):
            raise UsageError(f"{self.path.name} names a file outside its folder: {name}", "copy it into the folder")
        return path

    def read(self, value: object, draft: Draft) -> Items:
        """The turns of the prompt that was asked for."""
        self.head = ""
        if isinstance(value, str):
            return _chat(value, draft)
        if isinstance(value, list):
            return _messages(value, draft)
        if not isinstance(value, Mapping):
            raise self._unknown()
        if "prompts" in value:
            return self._promptfoo(value, draft)
        if "_type" in value or "lc" in value:
            return _LangChain(self, draft).items(value)
        if states := {"": value} if "signature" in value else _signatures(value):
            items, self.head = _dspy(self._picked(list(states.items()), draft)[1], draft)
            return items
        if isinstance(value.get("messages"), list):
            items = [
                draft.todo(f"{name} is no part of a template: {json.dumps(value[name], ensure_ascii=False)[:2000]}")
                for name in ("tools", "functions", "response_format")
                if name in value
            ]
            return [*items, *_messages(value["messages"], draft)]
        raise self._unknown()

    def _unknown(self) -> UsageError:
        return UsageError(
            f"{self.path.name} is no prompt that is known",
            "give a promptfoo config, a prompt saved by LangChain, a state saved by DSPy, messages as JSON, or a text",
        )

    def _picked(self, among: Sequence[Any], draft: Draft) -> Any:
        if not 1 <= self.prompt <= len(among):
            raise UsageError(f"there is no prompt {self.prompt}: {self.path.name} has {len(among)}", "--prompt N")
        if len(among) > 1:
            draft.notes.append(f"prompt {self.prompt} of {len(among)}; another: --prompt N")
        return among[self.prompt - 1]

    # promptfoo

    def _promptfoo(self, config: Mapping[str, Any], draft: Draft) -> Items:
        given = config["prompts"]
        entries = [given] if isinstance(given, (str, Mapping)) else given
        if not isinstance(entries, list) or not entries:
            raise UsageError(f"{self.path.name}: prompts is no list", "list texts, or files as file://prompt.txt")
        raw = self._picked([text for entry in entries for text in self._prompts(entry)], draft)
        items: Items = []
        for provider in config.get("providers") or ():
            settings = provider.get("config") if isinstance(provider, Mapping) else None
            for name in ("tools", "functions", "response_format"):
                if isinstance(settings, Mapping) and name in settings:
                    shown = json.dumps(settings[name], ensure_ascii=False, default=str)[:2000]
                    items.append(draft.todo(f"{name} of {provider.get('id')} is no part of a template: {shown}"))
        defaults = config.get("defaultTest")
        if isinstance(defaults, Mapping) and isinstance(defaults.get("vars"), Mapping):
            draft.notes.append(
                f"defaultTest sets {', '.join(map(str, defaults['vars']))}: they are fields of each query"
            )
        return [*items, *(_messages(raw, draft) if isinstance(raw, list) else _chat(raw, draft))]

    def _prompts(self, entry: object) -> list[Any]:
        """The prompts of one entry of the list."""
        if isinstance(entry, Mapping):
            entry = entry.get("raw") or entry.get("id")
        if not isinstance(entry, str):
            raise UsageError(f"{self.path.name}: a prompt is no text: {str(entry)[:60]}", "write it as a text")
        if "\n" in entry or not re.search(r"^(file|exec|\w+):|^[^{}]*\.\w{2,5}(:\w+)?$", entry):
            return [entry]
        if not re.fullmatch(r"(file://)?[^:]+\.(txt|json|j2|md|ya?ml)", entry):
            raise UsageError(
                f"the prompt {entry} is a program or comes from elsewhere, and nothing is run or fetched",
                "write it as a template, or name the program: --template MODULE:NAME",
            )
        path = self.beside(entry)
        text = _text(path, 4 * LONGEST)
        if path.suffix == ".txt":
            parts = re.split(r"^[ \t]*---[ \t]*$", re.sub(r"\r\n", "\n", text), flags=re.MULTILINE)
            return [part.strip() for part in parts if part.strip()]
        value = _parsed(path, text)
        return [value if isinstance(value, list) else text]


def _text(path: Path, most: int) -> str:
    """The text of a file. Raises `UsageError` if there is none, or too much."""
    try:
        with open_regular(path) as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a file that can be read") from error
    if len(data) > most:
        raise UsageError(f"{path.name} has more than {most:,} bytes", "take out what is not the prompt")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is no text in UTF-8", "save it as UTF-8") from error


def _parsed(path: Path, text: str) -> object:
    """The value of a JSON or YAML file; the text itself of others, and of JSON that becomes such when it is filled."""
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path.name, text)
    if path.suffix != ".json":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if "{{" in text or "{%" in text:
            return text
        raise UsageError(f"{path.name} is no JSON: {error}", "correct it") from error


def _yaml(name: str, text: str) -> object:
    """The value of a YAML text: data alone, and not more than it seems to hold."""
    import yaml

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, kind):  # the loader in C does not survive what is nested too deeply
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels")
        loader = kind(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}) > NODES:
            raise UsageError(
                f"{name} holds more than {NODES:,} values, aliases written out", "take out what is no prompt"
            )
        return loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{name} is no YAML of plain data: {' '.join(str(error).split())[:200]}", "correct it"
        ) from error


def _size(node: Any, known: dict[int, int]) -> int:
    """Values below a node, an alias counted as what it stands for. Raises `ValueError` if one stands for itself."""
    if (size := known.get(id(node))) is not None:
        if not size:
            raise ValueError("an alias stands for itself")
        return size
    known[id(node)] = 0
    below = node.value if isinstance(node.value, list) else ()
    total = 1 + sum(_size(part, known) for pair in below for part in (pair if isinstance(pair, tuple) else (pair,)))
    known[id(node)] = total
    return total


# --- texts and chats with tags of Nunjucks


def _chat(text: str, draft: Draft) -> Items:
    """A text: a chat if it is one as JSON or YAML, as it stands or once it is filled; else one message of the user."""
    bare = text.strip()
    if bare.startswith("- role:") and isinstance(value := _yaml("the prompt", text), list):
        return _messages(value, draft)
    if bare.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            value = value["messages"]
        if isinstance(value, list) and all(isinstance(message, Mapping) and "role" in message for message in value):
            return _messages(value, draft)
    pieces = Nunjucks(draft).pieces(carried(text))
    if re.match(r"\[\s*(\{\s*\"|\{%|\{#)", bare) and '"role"' in bare:
        marks = Marks()
        source = "".join(marks.mark(piece) if isinstance(piece, Tag) else piece for piece in pieces)
        if (items := _elements(source, marks, draft)) is not None:
            return items
        return [draft.todo("this looks like messages as JSON, but is none"), Turn("user", pieces)]
    return [Turn("user", pieces)]


def _messages(value: Sequence[Any], draft: Draft) -> Items:
    """Messages whose texts have tags, each on its own."""
    items: Items = []
    for message in value:
        items += _message(message, draft, lambda text: Nunjucks(draft).pieces(carried(text)))
    return items


def _message(message: object, draft: Draft, pieces: Any) -> Items:
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
            calls = json.dumps(message[name], ensure_ascii=False)[:2000]
            items.append(draft.todo(f"{name} of this message is no text: {calls}"))
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
            empty = _ENDS.match(piece) and items and isinstance(items[-1], Tag) and not _ENDS.match(items[-1])
            items[-1:] = [] if empty else [*items[-1:], piece]  # {% if not loop.last %},{% endif %}
            at += 1
        else:
            text, at = _object(source, at, marks)
            try:
                message = json.loads(text, strict=False)
            except (ValueError, RecursionError):
                return None
            items += _message(message, draft, marks.pieces)
    return items


_ENDS = re.compile(r"\{%[-+]?\s*end|\{#")


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


# --- LangChain


class _LangChain:
    """A prompt as LangChain writes it: by ``save``, with ``_type``, or by ``dumps``, with ``lc``."""

    ROLES: Mapping[str, str] = {"Human": "user", "AI": "assistant", "System": "system", "Tool": "tool"}

    def __init__(self, file: _Reader, draft: Draft) -> None:
        self.file, self.draft = file, draft

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
        return UsageError(f"{self.file.path.name}: the prompt has no {name}", "save it again with LangChain")

    def _variable(self, said: Mapping[str, Any]) -> Any:
        """How a variable is written: what is filled in already is a text."""
        filled = said.get("partial_variables")
        filled = filled if isinstance(filled, Mapping) else {}

        def say(name: str) -> str:
            if name in filled:
                if not isinstance(filled[name], str):
                    raise Untranslatable(f"what fills '{name}' is no text")
                return carried(filled[name])
            return Tag(f"{{{{ {self.draft.query(name)} }}}}")

        return say

    def _template(self, said: Mapping[str, Any], name: str = "template") -> str:
        if isinstance(path := said.get(f"{name}_path"), str):
            return carried(_text(self.file.beside(path), 4 * LONGEST))
        text = said.get(name)
        if not isinstance(text, str):
            raise self._malformed(name)
        return carried(text)

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

    def _shot(self, value: Mapping[str, Any]) -> list[str]:
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
            path = self.file.beside(path)
            example = _parsed(path, _text(path, 4 * LONGEST))
        if not isinstance(example, Mapping) or not isinstance(separator, str):
            raise self._malformed("example_prompt")
        if isinstance(given := said.get("examples"), list) and given:
            self.draft.notes.append(f"{counted(len(given), 'example')} of the file left out: index them as a pool")

        def part(name: str) -> str:
            value = said.get(name)
            if isinstance(value, Mapping):
                return "".join(
                    marks.mark(piece) if isinstance(piece, Tag) else piece for piece in self._text(value, said)
                )
            missing = value is None and f"{name}_path" not in said
            return "" if missing else self._template(said, name)

        prefix, suffix = part("prefix"), part("suffix")
        shot = "".join(marks.mark(piece) if isinstance(piece, Tag) else piece for piece in self._shot(example))
        begin, end = marks.mark(SHOTS), marks.mark(END)
        between = separator if suffix else ""
        before = "" if suffix else separator
        if not suffix and not prefix:
            before = marks.mark(Tag("{% if not loop.first %}")) + separator + marks.mark(Tag("{% endif %}"))
        prefix += separator if prefix and suffix else ""
        whole = f"{prefix}{begin}{before}{shot}{between}{end}{suffix}"
        self.draft.loops = True
        form = said.get("template_format", "f-string")
        if form == "f-string":
            whole = fstring(whole, self._variable(said), self.draft, marks)
        elif form != "mustache":
            raise UsageError(f"a few-shot prompt in '{form}' is not known", "save it with f-strings")
        else:
            say = self._variable(said)
            written = mustache(whole, lambda name: self._bare(say(name)), self.draft)
            whole = "".join(marks.mark(piece) if isinstance(piece, Tag) else piece for piece in written)
        return marks.pieces(whole)

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
        return [*items, Turn(role, [carried(said["content"])])]

    def _placeholder(self, name: str) -> Items:
        if name == self.draft.examples:
            self.draft.loops = True
            shot = [Turn("user", [Tag("{{ shot.input }}")]), Turn("assistant", [Tag("{{ shot.answer }}")])]
            return [SHOTS, *shot, END]
        if not re.search(r"history|messages", name):
            return [self.draft.todo(f"messages from '{name}', which a template does not have")]
        self.draft.notes.append(f"{name} is what was said before the query's question")
        turn, content = Tag(f"{{% for turn in {QUERY}.turns[:-1] %}}"), [Tag("{{ turn.content }}")]
        other = [Tag('{% if turn.role == "assistant" %}'), Turn("assistant", content), Tag("{% else %}")]
        return [turn, *other, Turn("user", content), Tag("{% endif %}"), END]

    def _few_shot_chat(self, value: Mapping[str, Any], said: Mapping[str, Any]) -> Items:
        """Demonstrations as turns. LangChain saves them as Python would show them, and their texts are in quotes."""
        inner = _constructed(said.get("example_prompt"))[1].get("messages")
        shown = [(_constructed(message)[0], _constructed(message)[1].get("prompt")) for message in inner or ()]
        texts = [(kind, _constructed(prompt)[1].get("template")) for kind, prompt in shown]
        if not texts:
            texts = list(_quoted(str(value.get("repr", "")).rpartition("example_prompt=")[2]))
        if not texts or not all(isinstance(text, str) for _, text in texts):
            return [self.draft.todo("demonstrations as turns, of which the file does not say how they are written")]
        self.draft.loops = True
        turns = [
            Turn(self.ROLES.get(kind.partition("Message")[0], "user"), self._shot({"template": text}))
            for kind, text in texts
        ]
        return [SHOTS, *turns, END]


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
    r"(\w{1,20})MessagePromptTemplate\(prompt=PromptTemplate\(.*?\btemplate=('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
)


def _quoted(shown: str) -> Iterator[tuple[str, str]]:
    """Kinds and templates of messages, from how Python shows them."""
    for kind, quoted in _REPR.findall(shown[: 4 * LONGEST]):
        yield f"{kind}Message", ast.literal_eval(quoted)


# --- DSPy


def _signatures(value: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The predictors of a saved program that have a signature."""
    return {name: state for name, state in value.items() if isinstance(state, Mapping) and "signature" in state}


MISSING = "Not supplied for this particular example. "
INCOMPLETE = "This is an example of the task, though some input or output fields are not supplied."


def _dspy(state: Mapping[str, Any], draft: Draft) -> tuple[Items, str]:
    """What ChatAdapter writes for a saved predictor (dspy 3.3.1, adapters/chat_adapter.py and base.py), and the head of
    the template."""
    signature = state.get("signature")
    fields = signature.get("fields") if isinstance(signature, Mapping) else None
    if not isinstance(fields, list) or len(fields) < 2 or not all(isinstance(field, Mapping) for field in fields):
        raise UsageError(
            "the saved signature has no input and output", "save the program again: program.save('x.json')"
        )
    assert isinstance(signature, Mapping)
    task, demos = str(signature.get("instructions") or ""), state.get("demos") or []
    names = [_name(field, demos) for field in fields]
    items: Items = []
    inputs = _inputs(names, task, draft, items)
    outputs = names[len(inputs) :]
    about = {
        name: "" if (text := str(field.get("description") or "")) == f"${{{name}}}" else text
        for name, field in zip(names, fields, strict=True)
    }
    if isinstance(demos, list) and demos:
        draft.notes.append(f"{counted(len(demos), 'demo')} of the file left out: index them as a pool")
    draft.notes.append("DSPy does not save the types of fields: all are written as text")
    draft.input = draft.input or first(INPUTS, inputs) or inputs[0]
    draft.given, draft.output, draft.loops = draft.input, outputs[-1], True

    def listed(some: Sequence[str]) -> str:
        return "\n".join(f"{i}. `{name}` (str): {about[name]}" for i, name in enumerate(some, 1)).strip()

    objective = "\n        ".join(["", *task.splitlines()])
    system = (
        f"Your input fields are:\n{listed(inputs)}\nYour output fields are:\n{listed(outputs)}\n"
        "All interactions will be structured in the following way, with the appropriate values filled in.\n\n"
        + "".join(f"{_header(name)}{{{name}}}\n\n" for name in names)
        + f"[[ ## completed ## ]]\nIn adhering to this structure, your objective is: {objective}"
    )
    asked: list[str] = []
    for name in inputs:
        try:
            value = Tag(f"{{{{ {draft.query(name)} }}}}")
        except Untranslatable as error:
            value = draft.todo(str(error))
        asked += [_header(name), value, "\n\n"]
    then = ", then ".join(f"`[[ ## {name} ## ]]`" for name in outputs)
    asked.append(
        f"Respond with the corresponding output fields, starting with the field {then}, and then ending with the "
        "marker for `[[ ## completed ## ]]`."
    )
    items += [Turn("system", [carried(system)]), *_demos(inputs, outputs, draft), Turn("user", asked)]
    answer = json.dumps(f"{_header(outputs[-1])}{{{{ output }}}}\n\n[[ ## completed ## ]]\n")
    return items, f"+++\nanswer = {answer}\n{'reasons = true' + chr(10) if len(outputs) > 1 else ''}+++\n"


def _header(name: str) -> str:
    return f"[[ ## {name} ## ]]\n"


def _name(field: Mapping[str, Any], demos: object) -> str:
    """The name of a saved field, which is in its description, if that is the usual one, or in a demo; else its prefix
    says it."""
    if usual := re.fullmatch(r"\$\{(\w+)\}", str(field.get("description"))):
        return usual[1]
    said = re.sub(r"\W+", "_", str(field.get("prefix") or "").rstrip(": ")).strip("_").lower()
    shown = [name for demo in demos if isinstance(demo, Mapping) for name in demo] if isinstance(demos, list) else []
    like = next((str(name) for name in shown if str(name).lower() == said), said)
    if not re.fullmatch(r"[A-Za-z_]\w*", like):
        raise UsageError(f"a field of the saved signature has no name: {str(field)[:80]}", "save the program again")
    return like


def _inputs(names: Sequence[str], task: str, draft: Draft, items: Items) -> list[str]:
    """The fields that are inputs: DSPy does not save which they are."""
    usual = re.fullmatch(r"Given the fields (.*), produce the fields (.*)\.", task)
    said = re.findall(r"`(\w+)`", usual[1]) if usual else []
    if said and list(names[: len(said)]) == said:
        return said
    if "reasoning" in names[1:]:
        return list(names[: names.index("reasoning")])
    if len(names) > 2:
        items.append(
            draft.todo(f"DSPy does not save which fields are outputs; is it {names[-1]} alone? Else correct this")
        )
    return list(names[:-1])


def _demos(inputs: Sequence[str], outputs: Sequence[str], draft: Draft) -> Items:
    """The demonstrations: first those that lack a field, then the others."""
    sure = {draft.given, draft.output, "context", "options"}
    unsure = [name for name in (*inputs, *outputs) if name not in sure]

    def text(names: Sequence[str], optional: bool) -> list[str]:
        pieces: list[str] = []
        for name in names:
            field = "shot.output" if name == draft.output else draft.shot("shot", name)
            may = optional and name in unsure
            if name in outputs and may:
                field += f" | default({json.dumps(MISSING)})"
            shown = [_header(name), Tag(f"{{{{ {field} }}}}"), "\n\n"]
            if name in inputs and may:
                shown = [Tag(f"{{% if {field} is defined %}}"), *shown, Tag("{% endif %}")]
            pieces += shown
        return pieces

    def turns(optional: bool) -> Items:
        # what DSPy strips off ends, it strips off texts that begin with a marker
        trimmed = [
            [Tag("{% filter trim %}"), *pieces, Tag("{% endfilter %}")]
            for pieces in (text(inputs, optional), text(outputs, optional))
        ]
        lead = [INCOMPLETE, "\n\n"] if optional else []
        return [Turn("user", [*lead, *trimmed[0]]), Turn("assistant", [*trimmed[1], "\n\n[[ ## completed ## ]]\n"])]

    if not unsure:
        return [SHOTS, *turns(False), END]
    whole = " and ".join(f"shot.{name} is defined" for name in unsure)
    return [
        Tag(f"{{% for shot in shots if not ({whole}) %}}"), *turns(True), END,
        Tag(f"{{% for shot in shots if {whole} %}}"), *turns(False), END,
    ]  # fmt: skip
