"""What can be typed next on a command line: commands, options, their values, files; and what fits what was typed, where
letters may be left out. No Textual.

The commands complete themselves, as in a shell; this module finds out which of them is typed, and adds files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeVar

from ..engine.index.readers.files import SUFFIXES

T = TypeVar("T")

MOST_FILES = 200
"""Maximum files offered of a folder."""

FILES = ("paths", "queries", "out", "log", "file")
"""Arguments that are files."""

CommandLine = Any
"""A command as Typer made it, or None: then only files are completed."""


@dataclass(frozen=True, slots=True)
class NextWord:
    """A word that can stand where the last one is being typed, and the whole line with it."""

    word: str
    about: str = ""
    line: str = ""


class Hits(NamedTuple):
    """How well a text fits what was typed, the less the better, and the ``places`` of its letters."""

    rank: int
    places: Sequence[int]


SCATTERED = 6
"""Times the length of a word that its letters may be apart."""


def hits(typed: str, text: str, name: int | None = None) -> Hits | None:
    """Every word typed is in the text, in any case, or its letters in their order, in the first ``name`` letters of it;
    None: it does not fit. In one pass: Textual's own matcher tries all ways, and takes seconds for ten letters in
    fifty."""
    low, rank, places = text.lower(), 0, set[int]()
    if len(low) != len(text):  # the small form of a letter may be two
        low = text
    for word in typed.lower().split():
        at = low.find(word)
        if at >= 0:
            places.update(range(at, at + len(word)))
            rank += 0 if at == 0 else 1 if not low[at - 1].isalnum() else 2
            continue
        end = -1
        for letter in word:
            end = low.find(letter, end + 1, name)
            if end < 0:
                return None
        at = end + 1
        for letter in reversed(word):  # as close together as they end
            at = low.rfind(letter, 0, at)
            places.add(at)
        if end - at > SCATTERED * len(word):
            return None
        rank += 2 + end - at
    return Hits(rank, sorted(places))


def completed(root: CommandLine, typed: str, files: bool = True, workspace: Path | None = None) -> list[NextWord]:
    """What the last word can become: the words that begin like it, else those whose letters fit it; with the line."""
    before, word = _last_word(typed)
    if is_option(root, typed):
        return []  # as it stands: --seed becomes no --seeds
    listed = candidates(root, before + word, files, workspace)
    if not listed and word:
        stem = word[: max(map(word.rfind, "/,=")) + 1] or ("--" if word.startswith("-") else "")
        rest = word.removeprefix(stem).lstrip("-")
        every = candidates(root, before + stem, files, workspace)
        listed = fitting(rest, every, lambda candidate: candidate.word[len(stem) :])
    return [replace(candidate, line=before + quote(candidate.word)) for candidate in listed]


def fitting(typed: str, values: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """Those whose text fits what was typed, the best first."""
    ranked = [(fit.rank, value) for value in values if (fit := hits(typed, text(value)))]
    return [value for _, value in sorted(ranked, key=lambda pair: pair[0])]


def _last_word(typed: str) -> tuple[str, str]:
    """A command line up to its last word, and that word without the quotation marks a shell needs, also if the last one
    is still to come."""
    start, mark = 0, ""
    for at, letter in enumerate(typed):
        if letter == mark:
            mark = ""
        elif not mark and letter in "'\"":
            mark = letter
        elif not mark and letter == " ":
            start = at + 1
    return typed[:start], re.sub("['\"]", "", typed[start:])


def candidates(root: CommandLine, typed: str, files: bool = True, workspace: Path | None = None) -> list[NextWord]:
    """The words that begin like the last one of ``typed``, best first, without that word itself. ``files``: names of
    files, too. ``workspace`` is the one whose versions are meant."""
    before, _, word = typed.rpartition(" ")
    if root is None:
        return files_in(word) if files else []
    command, rest = _command_of(root, before)
    context = command.make_context(
        command.name, list(rest), resilient_parsing=True, default_map={"workspace": workspace} if workspace else None
    )
    by_name = {name: option for option in command.params for name in _names(option)}
    name, equals, value = word.partition("=")
    if equals and name in by_name:
        return [NextWord(f"{name}={c.word}", c.about) for c in _values(by_name[name], context, value, files)]
    last = by_name.get(rest[-1]) if rest else None
    if last is not None and not last.is_flag:
        return _values(last, context, word, files)
    if word.startswith("-"):
        return _matching(command, context, word)
    listed = _matching(command, context, word) if hasattr(command, "commands") else []
    left = [p for p in command.params if not _names(p) and (p.nargs == -1 or not context.params.get(p.name))]
    for argument in left:
        listed += _matching(argument, context, word)
    if files and not listed and (word or any(argument.name in FILES for argument in left)):
        listed = files_in(word)
    return listed if word else [*listed, *_matching(command, context, "--")]


def is_option(root: CommandLine, typed: str) -> bool:
    """Whether the last word is an option as it stands, such as ``--seed``, though ``--seeds`` is one, too."""
    before, _, word = typed.rpartition(" ")
    return root is not None and any(word in _names(option) for option in _command_of(root, before)[0].params)


def _command_of(root: CommandLine, typed: str) -> tuple[CommandLine, list[str]]:
    """The command that is typed, and the words after its name."""
    command = root
    rest: list[str] = []
    for word in typed.removeprefix("icl-curate ").split():
        below = getattr(command, "commands", {})
        if word in below and not rest:
            command = below[word]
        elif command is not root:  # options of the root come before a command
            rest.append(word)
    return command, rest


def _names(parameter: Any) -> Sequence[str]:
    """Of an option; an argument has none."""
    return (*parameter.opts, *parameter.secondary_opts) if parameter.param_type_name == "option" else ()


def _values(option: Any, context: Any, word: str, files: bool) -> list[NextWord]:
    """Those of an option; those without known ones may be files."""
    listed = _matching(option, context, word, option.help)
    return listed or (files_in(word) if files and word else [])


def _matching(asked: Any, context: Any, word: str, about: str = "") -> list[NextWord]:
    """What a command, an option or an argument makes of the word, options by their long names."""
    return [
        NextWord(item.value, " ".join((about or item.help or "").split()))
        for item in asked.shell_complete(context, word)
        if item.value not in (word, "--help") and (item.value[:1] != "-" or item.value[:2] == "--")
    ]


def files_in(word: str) -> list[NextWord]:
    """Files and folders whose names start with the word, those that ``index`` reads first."""
    folder, slash, start = word.rpartition("/")
    try:
        listed = [*Path(folder + slash or ".").expanduser().iterdir()]
    except (OSError, RuntimeError):  # no such folder, or no such user
        return []
    offered = [path for path in listed if path.name.startswith(start) and path.name != start]
    offered = [path for path in offered if start or not path.name.startswith(".")]
    offered.sort(key=lambda path: (path.suffix.lower() not in SUFFIXES, path.name))
    return [NextWord(folder + slash + path.name + "/" * path.is_dir()) for path in offered[:MOST_FILES]]
