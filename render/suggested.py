"""Suggested commands with the workspace, LLM, server, prompts and grading of the command that suggests them, if these
were typed: pasted, they would otherwise look into another workspace, ask another LLM or measure other prompts. Where
there is no command line, a workspace and an LLM can be told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from shlex import quote
from typing import Any

PROGRAM = re.compile(r"\bicl-curate((?: [a-z][a-z-]*)+)")
KEPT = (
    "llm", "base_url", "template", "prompt_format", "answer_prefix", "order", "metric", "read", "least", "judge_llm",
    "judge_prompt", "answers", "endpoint", "max_tokens", "temperature", "top_p", "stop", "response_format",
    "reasoning_effort",
)  # fmt: skip
OPTIONS = {"workspace": "-w", "k": "-k"} | {name: f"--{name.replace('_', '-')}" for name in KEPT}
"""What a suggestion keeps of the command line, by the name of the parameter: all that says which prompts are asked, of
whom, and how answers are graded; but neither headers nor further fields of the body, which may be secret."""
SPELT = OPTIONS | {"workspace": "-w|--workspace", "k": "-k|--shots"}
OTHERWISE = {("train ranker", "temperature"), ("audit", "k"), ("serve", "k")}
"""Options that are none of these: of another meaning, and of `serve`, whose ``--locked`` has its own."""

_BELOW: Mapping[str, str] = {
    "": "calibrate check config curate demo demos diff evaluate export flips history index jobs keep lock preview prune"
    " redo relabel report restore review serve skipped sources status suspects topics tune undo verify version watch",
    "calibrate": "keys query runs",
    "check": "prune relabel",
    "flips": "prune show",
    "jobs": "cancel follow resume",
    "llm": "check record trust",
    "suspects": "prune show",
    "template": "check show",
    "train": "all calibration datamodel fixed ranker rows sources topics",
    "tune": "apply vote",
    "version": "delete list restore save show",
}
_ASK = re.compile(r" (calibrate( keys| query)?|curate|evaluate|llm (check|record)|preview|train .*|tune|watch)")
IN_WORKSPACE: dict[str, frozenset[str]] = {
    words: frozenset({"workspace", *(("llm", "base_url") if _ASK.fullmatch(words) else ())})
    for words in (f" {f'{above} {word}'.strip()}" for above, below in _BELOW.items() for word in below.split())
}
"""The words of every command that has the option of a workspace, and which of the options that can be told it has."""

_told: ContextVar[dict[str, str] | None] = ContextVar("_told", default=None)
_typed: dict[str, str] = {}
_commands: dict[str, frozenset[str]] = {}


def remember(context: Any) -> None:
    """Of a command that begins: which of the `OPTIONS` were typed, and which each command has. ``context`` is the
    parser's."""
    if context.parent is None:
        _typed.clear()
        _commands.clear()
    for name in OPTIONS.keys() & context.params.keys():
        own = any(context.command_path.endswith(f" {words}") and name == other for words, other in OTHERWISE)
        if context.get_parameter_source(name).name == "COMMANDLINE" and not own:
            value = context.params[name]
            values = value if isinstance(value, list | tuple) else [value]
            _typed[name] = f" {OPTIONS[name]} ".join(quote(str(each)) for each in values)
    if _typed and not _commands:
        _commands.update(_options(context.find_root().command.commands, ""))


def _options(commands: Mapping[str, Any], above: str) -> dict[str, frozenset[str]]:
    """By the words of each command below, its options among `OPTIONS`."""
    options: dict[str, frozenset[str]] = {}
    for name, command in commands.items():
        words = f"{above} {name}"
        names = {parameter.name for parameter in command.params} & OPTIONS.keys()
        options[words] = frozenset(name for name in names if (words.strip(), name) not in OTHERWISE)
        options |= _options(getattr(command, "commands", {}), words)
    return options


@contextmanager
def suggesting(workspace: Path | None, **llm: str) -> Iterator[None]:
    """Commands get this workspace, whatever was typed; None: the usual one. ``llm``: also ``llm`` and ``base_url``."""
    told = {"workspace": str(workspace)} if workspace else {}
    before = _told.set({name: quote(value) for name, value in (told | llm).items()})
    try:
        yield
    finally:
        _told.reset(before)


def completed(text: str) -> str:
    """The text, each command in it with what was typed, where it has that option and does not name another."""
    parts = re.split(r"(?=\bicl-curate )", text) if _typed_or_told() and "icl-curate " in text else [text]
    return "".join(map(_completed, parts))


def _typed_or_told() -> dict[str, str]:
    """By its name, each of the `OPTIONS` that commands get."""
    told = _told.get()
    return _typed if told is None else told


def _completed(part: str) -> str:
    """The same of a text with one command, at its beginning."""
    if (match := PROGRAM.match(part)) is None:
        return part
    words, typed = match[1], _typed_or_told()
    commands = _commands if _told.get() is None else IN_WORKSPACE
    while words and words not in commands:
        words = words.rpartition(" ")[0]
    head, tail = part[: len("icl-curate") + len(words)], part[len("icl-curate") + len(words) :]
    given = {name: value for name, value in typed.items() if name in commands.get(words, ())}
    named = {name: re.search(rf" (?:{spelt})[ =]('[^']*'|\S*)", tail) for name, spelt in SPELT.items()}
    if (llm := named["llm"]) and llm[1].rstrip(",;:.)") != given.get("llm"):
        given.pop("base_url", None)  # of another LLM the server is another one
    given = {name: value for name, value in given.items() if not named[name]}
    return head + "".join(f" {OPTIONS[name]} {given[name]}" for name in OPTIONS if name in given) + tail
