"""Shared by the commands: workspace, settings, progress and interruption."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_error, print_json, say

if TYPE_CHECKING:
    from ..engine.base.contract import Reported
    from ..engine.base.progress import CancelToken, Monitor, Report
    from ..engine.pool.records import Query
    from ..engine.store.decisions import Change
    from ..engine.store.settings import Settings
    from ..engine.store.workspace import Workspace


@dataclass
class State:
    """How errors and progress are reported; set before anything can fail."""

    quiet: bool = False
    json: bool = False
    waiting: bool = False
    cancel: CancelToken | None = None


state = State()

WAITED = 1.0
"""Seconds after which a command reports what it is waiting for."""


def can_ask() -> bool:
    """Whether somebody at a terminal can answer a question."""
    return not state.json and sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """The answer to a question; False if it was interrupted."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def open_workspace(path: Path, create: bool = False) -> Workspace:
    from ..engine.store.workspace import Workspace

    return Workspace.create(path) if create else Workspace.open(path)


def settings_of(workspace: Path, **flags: Any) -> Settings:
    from ..engine.store.settings import resolve

    settings = resolve(workspace, flags).settings
    if any(flags.get(name) is not None for name in flags if name.startswith("judge_")):
        from ..engine.grading.metrics import JUDGES

        if settings.metric not in JUDGES:
            raise UsageError("options of a judge were given, but the metric is another", "--metric judge")
    return settings


def split_of(name: str) -> Any:
    from ..engine.pool.records import SPLITS

    if name not in SPLITS:
        raise UsageError(f"unknown split '{name}'", f"use one of: {', '.join(SPLITS)}")
    return name


_OF_FILES = re.compile(r"(.+?::[A-Za-z]\w*)=(.+)", re.DOTALL)
"""``GLOB::FIELD=COLUMN``, where ``::FIELD=`` comes first: the name of a file may have an equals sign."""


def mapping_of(pairs: Sequence[str]) -> dict[str, str]:
    """Columns by field, from ``FIELD=COLUMN``, or ``GLOB::FIELD=COLUMN`` for the files that match; names of files
    and of columns may hold colons and equals signs, too."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        of_files = _OF_FILES.fullmatch(pair)
        name, column = of_files.groups() if of_files else pair.partition("=")[::2]
        if not name or not column:
            raise UsageError(f"--map takes FIELD=COLUMN, not '{pair}'", "--map input=utterance --map output=intent")
        if name in mapping:
            raise UsageError(
                f"--map {name} is given twice: {mapping[name]} and {column}",
                f"name one; both in one text: --map '{name}={{{mapping[name]}}} / {{{column}}}'; where files differ: "
                f"--map 'old*.csv::{name}={column}'",
            )
        mapping[name] = column
    return mapping


def fields_of(pairs: Sequence[str]) -> dict[str, str]:
    """Further fields of a query, from ``NAME=VALUE``."""
    if wrong := [pair for pair in pairs if pair.partition("=")[0] == pair or pair.startswith("=")]:
        raise UsageError(f"--field takes NAME=VALUE, not '{wrong[0]}'", "--field tier=gold")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def asked_of(own: Mapping[str, Any], pairs: Sequence[str], settings: Settings) -> Query:
    """A query with further fields, from ``NAME=VALUE``. Raises `UsageError` if it lacks one that the prompt reads."""
    from ..engine.pool.fields import OPTION, query_of, require

    query = query_of({**fields_of(pairs), **own})
    require(query, settings.reads, OPTION)
    return query


def query_split_of(name: str) -> Any:
    if split_of(name) == "pool":
        raise UsageError("the pool cannot be evaluated on itself", "--split validation or --split test")
    return name


def text_of(query: str) -> str:
    """The query as typed, or read from stdin if it is ``-``."""
    from ..engine.index.readers.files import STDIN, read_stdin

    if query != STDIN:
        return query
    return read_stdin("pipe a query in, or type it instead of -").decode(errors="replace").strip()


def tell(result: Reported, as_json: bool, *more: Any, done: bool = False) -> None:
    """Print a result as the object of ``--json``, or as people read it, where ``more`` says how. ``done``: something
    was changed, which ``--quiet`` does not tell."""
    if as_json:
        print_json(result.as_json())
    elif not (done and state.quiet):
        from ..render import show

        show(result.kind, result, *more)


def tell_change(change: Change, as_json: bool) -> None:
    """What a decision did, or would do."""
    tell(change, as_json, done=not change.dry_run)


def tell_all(kind: str, name: str, rows: Sequence[Reported], as_json: bool, *more: Any) -> None:
    """Print a list, the field ``name`` of an object of this kind, as `tell` does."""
    if as_json:
        print_json({"kind": kind, name: [row.as_json() for row in rows]})
    else:
        from ..render import show

        show(kind, rows, *more)


def fail(what: str, fix: str, code: int) -> NoReturn:
    print_error(what, fix, code, state.json)
    raise typer.Exit(code)


def show_waiting(what: str, waited: float) -> None:
    """Report once on stderr what a command is waiting for. Ctrl-C stops the wait, except in a thread that stores paid
    answers; but another process that only looks into the workspace must not keep a command from saying in it that it
    was stopped."""
    token = state.cancel
    stopped = token and token.cancelled and threading.current_thread() is threading.main_thread()
    if stopped and waited >= WAITED:
        raise KeyboardInterrupt
    if waited >= WAITED and not state.waiting and not state.quiet:
        say(f"waiting for {what}", err=True)
    state.waiting = waited >= WAITED


@contextmanager
def narrated() -> Iterator[Monitor]:
    """Report progress on stderr, or to a folder if this process is a job or is watched. The first Ctrl-C or SIGTERM
    stops the work cleanly, the second one at once."""
    from ..engine.base.progress import Monitor, stoppable

    with stoppable() as token:
        state.cancel = token
        try:
            with _narrator() as narrator:
                yield Monitor(narrator, token)
        finally:
            state.cancel = None


def _narrator() -> AbstractContextManager[Report]:
    from ..engine.jobs import OBSERVED, VARIABLE

    if folder := os.environ.get(VARIABLE) or os.environ.get(OBSERVED):
        from ..engine.jobs.child import Recorder

        return Recorder(Path(folder))
    from ..render.progress import Narrator

    return Narrator(state.quiet)
