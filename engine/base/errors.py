"""Errors a user can cause, each with its documented exit code and the command that fixes it; counts in sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALARMED = 6
"""Exit code of a command that did its work and raises an alarm: no error, but CI is to stop."""


class CurateError(Exception):
    """An operation failed. ``what`` is one line; ``fix`` is the command or step that fixes it."""

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        if fix:
            self.add_note(f"fix: {fix}")  # in tracebacks of Python


class UsageError(CurateError):
    """The request itself is wrong: an option, a file, a configuration value."""

    exit_code = 2


class LLMError(CurateError):
    """The chosen LLM cannot be reached, refuses, or lacks what a method needs."""

    exit_code = 3


class BudgetError(CurateError):
    """The plan costs more than the budget allows; no request beyond the budget was sent."""

    exit_code = 4


class WorkspaceError(CurateError):
    """The workspace is missing, locked by another process, or of another version."""

    exit_code = 5


class NoWorkspaceError(WorkspaceError):
    """There is no workspace yet."""


class LockedError(WorkspaceError):
    """Another process has the workspace open and did not close it in time."""


class DiskError(CurateError):
    """The operating system refuses access to a file: no space, no permission, a failing disk."""


class Cancelled(CurateError):
    """The user stopped the work; finished parts are kept."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted", "run the same command again to continue")


def counted(count: int, what: str, one: str = "", many: str = "") -> str:
    """A count and what it counts, ``what`` in the singular, and the verb that follows, for ``one`` and for ``many``:
    ``1 row``, ``1,200 rows``, ``2 queries are``."""
    if count == 1:
        return f"1 {what} {one}".rstrip()
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {several} {many}".rstrip()


def did_you_mean(name: str, names: Iterable[str], mark: str = ";") -> str:
    """What to add to the message that there is no such name: the one of the ``names`` that is like it, if there is."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"{mark} did you mean '{near[0]}'?" if near else ""


def open_of(left: int, count: int) -> str:
    """How many of a ``count`` are ``left`` to be decided on, before that count: ``0 open of 5``; empty if all are."""
    return "" if left == count else f"{left:,} open of "
