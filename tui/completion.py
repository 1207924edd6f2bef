"""What can be typed next on a command line: commands, options, their values, files. No Textual.

The commands describe themselves (`commands.grammar`); this module only walks through what was typed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..engine.index.readers.formats import SUFFIXES

MOST_FILES = 200
"""Maximum files offered of a folder."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option by its names; ``values`` lists the known values, ``several``: separated by commas."""

    names: tuple[str, ...]
    about: str = ""
    takes_value: bool = True
    values: Callable[[], Sequence[str]] | None = None
    several: bool = False
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command with its options and the commands below it."""

    about: str = ""
    options: Sequence[OptionSpec] = ()
    commands: Mapping[str, CommandSpec] = field(default_factory=dict)
    files: bool = True
    """Whether its arguments are names of files."""


NOTHING_KNOWN = CommandSpec()
"""Without commands, only files are completed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that can stand where the last one is being typed."""

    word: str
    about: str = ""


def candidates(root: CommandSpec, typed: str, files: bool = True) -> list[Candidate]:
    """The words that begin like the last one of ``typed``, best first, without that word itself. ``files``: names of
    files, too."""
    before, _, word = typed.rpartition(" ")
    given = before.split()
    if given[:1] == ["icl-curate"]:
        given = given[1:]
    command, rest = _command_of(root, given)
    by_name = {name: option for option in command.options for name in option.names}
    name, equals, value = word.partition("=")
    if equals and name in by_name:
        return [Candidate(f"{name}={c.word}", c.about) for c in _values(by_name[name], value, files)]
    last = by_name.get(rest[-1]) if rest else None
    if last is not None and last.takes_value:
        return _values(last, word, files)
    if word.startswith("-"):
        return _matching(_options(command, rest), word)
    if command.commands:
        return _matching([Candidate(name, sub.about) for name, sub in command.commands.items()], word)
    named = _files(word) if files and (word or command.files) else []
    return named if word else [*named, *_options(command, rest)]


def readable() -> list[Candidate]:
    """The files and folders of the working folder that ``index`` can read."""
    return [one for one in _files("") if one.word.endswith("/") or Path(one.word).suffix.lower() in SUFFIXES]


def is_option(root: CommandSpec, typed: str) -> bool:
    """Whether the last word is an option as it stands, such as ``--propose``, though ``--proposed`` is one, too."""
    before, _, word = typed.rpartition(" ")
    given = before.split()
    command, _ = _command_of(root, given[1:] if given[:1] == ["icl-curate"] else given)
    return any(word in option.names for option in command.options)


def _command_of(root: CommandSpec, given: Sequence[str]) -> tuple[CommandSpec, list[str]]:
    """The command that the words name, and the words after its name."""
    command = root
    rest: list[str] = []
    for word in given:
        if word in command.commands and not rest:
            command = command.commands[word]
        elif not (command.commands and word.startswith("-")):  # options of the root come before a command
            rest.append(word)
    return command, rest


def _options(command: CommandSpec, rest: Sequence[str]) -> list[Candidate]:
    """The options that can still be given, by their long names."""
    used = {word.partition("=")[0] for word in rest}
    return [
        Candidate(max(option.names, key=len), option.about)
        for option in command.options
        if option.repeatable or not used & set(option.names)
    ]


def _values(option: OptionSpec, word: str, files: bool) -> list[Candidate]:
    if option.values is None:
        return _files(word) if files and word else []
    done, comma, start = word.rpartition(",") if option.several else ("", "", word)
    used = set(done.split(",")) if comma else set()
    found = _matching([Candidate(value) for value in option.values() if value not in used], start)
    return [Candidate(done + comma + one.word, option.about) for one in found]


def _matching(found: Sequence[Candidate], start: str) -> list[Candidate]:
    return [one for one in found if one.word.startswith(start) and one.word != start]


def _files(word: str) -> list[Candidate]:
    """Files and folders whose names start with the word, those that ``index`` reads first. Names that a shell would
    have to quote are not offered."""
    folder, slash, start = word.rpartition("/")
    try:
        found = list(_offered(Path(folder + slash or ".").expanduser(), start))
    except (OSError, RuntimeError):  # no such folder, or no such user
        return []
    found.sort(key=lambda path: (path.suffix.lower() not in SUFFIXES, path.name))
    return [Candidate(folder + slash + path.name + "/" * path.is_dir()) for path in found[:MOST_FILES]]


def _offered(folder: Path, start: str) -> Iterator[Path]:
    for path in folder.iterdir():
        name = path.name
        hidden = name.startswith(".") and not start
        if name.startswith(start) and name != start and not hidden and shlex.quote(name) == name:
            yield path
