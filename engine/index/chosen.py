"""Files chosen for a pool one by one: what each is for, its columns, what is doubtful about it, and the command line
that says the same."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from ..base.errors import CurateError
from .joins import alternatives
from .listing import FileHere, Look, look, use_of
from .rows import OF_FILES
from .understood import nameless

USES = ("pool", "validation", "test", "")
FIELDS = ("input", "output", "source", "options", "context")
SHARED = ""
"""The entry of a draft that holds for all files: the shares held out, and the names of labels."""
SHARE = "0.1"
"""Of the pool, held out where no file has the queries."""

Draft = dict[str, dict[str, str]]
"""What was chosen, by file: its ``use`` and its columns."""


class Wanted(NamedTuple):
    """A file that is to be looked into with these columns and names of labels."""

    path: str
    columns: tuple[tuple[str, str], ...] = ()
    labels: tuple[str, ...] = ()

    def look(self) -> Look | str:
        """How it will be read, or why it cannot be. For threads."""
        try:
            return look(self.path, dict(self.columns), self.labels)
        except CurateError as error:
            return f"{error.what}; {error.fix}"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"


class ChosenFiles:
    """Files to index: those ``here``, and those added to the ``draft``, which is changed in place."""

    def __init__(self, draft: Draft, here: Sequence[FileHere] = ()) -> None:
        self.draft = draft
        self.here = {each.path: each for each in here}
        self.looks: dict[Wanted, Look | str] = {}

    @property
    def paths(self) -> list[str]:
        return [*self.here, *(path for path in self.draft if path != SHARED and path not in self.here)]

    def change(self, path: str, name: str, value: str) -> None:
        """Set the use or a column of a file, or what holds for all; empty: as it is found, or not used. Whoever chooses
        a column wants to use the file."""
        entry = self.draft.setdefault(path, {})
        if name in FIELDS and not self.use(path):
            entry["use"] = use_of(path)
        if value or name == "use":
            entry[name] = value
        else:
            entry.pop(name, None)

    def use(self, path: str) -> str:
        """One of `USES`: what was chosen, else what is likely."""
        own = self.draft.get(path, {}).get("use")
        return own if own in USES else (self.here[path].use or "") if path in self.here else ""

    def used(self, *uses: str) -> list[str]:
        """The files for these uses; for none, all that are used."""
        return [path for path in self.paths if self.use(path) in (uses or USES[:3])]

    @property
    def shares(self) -> dict[str, str]:
        """The shares of the pool that are held out as queries where no file has them, as they were typed."""
        shares = {"validation": SHARE, "test": "" if self.used("validation") else SHARE} if self.used("pool") else {}
        shares = {name: self.draft.get(SHARED, {}).get(name, share) for name, share in shares.items()}
        return {name: share for name, share in shares.items() if share not in ("", "0") and not self.used(name)}

    def columns(self, path: str) -> dict[str, str]:
        """The columns that are to be mapped: chosen, or guessed."""
        seen = self.seen(path)
        return {**(seen.guessed if isinstance(seen, Look) else {}), **self.own(path)}

    def seen(self, path: str) -> Look | str | None:
        """How a file will be read, or why it cannot be; None: not known yet."""
        seen = self.looks.get(self._wanted(path))
        here = self.here.get(path)
        return seen if seen is not None or here is None or self.own(path) else here.look or here.why or None

    def unseen(self) -> list[Wanted]:
        """The files in use that are still to be read as they are chosen."""
        return [wanted for wanted in map(self._wanted, self.used()) if wanted not in self.looks]

    def own(self, path: str) -> dict[str, str]:
        """The columns that were chosen."""
        return {name: column for name, column in self.draft.get(path, {}).items() if name in FIELDS}

    def _wanted(self, path: str) -> Wanted:
        labels = tuple(name.strip() for name in self.draft.get(SHARED, {}).get("labels", "").split(",") if name.strip())
        return Wanted(path, tuple(self.own(path).items()), labels)

    def fault(self) -> tuple[str, str] | None:
        """What forbids to index, and at which file; None: nothing."""
        wrong = ((path, why) for path in self.used() if (why := self.why(path)))
        alone = None if self.used("pool") else (SHARED, "no file is for the pool")
        return next(wrong, None) or alone or ((SHARED, why) if (why := self.wrong_shares()) else None)

    def wrong_shares(self) -> str:
        """Why the shares cannot be held out; empty: they can."""
        try:
            shares = [*map(float, self.shares.values())]
        except ValueError:
            shares = [1.0]
        right = all(0 < share < 1 for share in shares) and sum(shares) < 1
        return "" if right else "shares are above 0 and leave a part to the pool"

    def why(self, path: str) -> str:
        """Why a file cannot be used; empty: it can be, or it is not known yet."""
        seen = self.seen(path)
        if not isinstance(seen, Look) or seen.usable:
            return seen if isinstance(seen, str) else ""
        if lacking := [name for name in seen.peek.understood.lacking if name not in self.own(path)]:
            return f"no column is the {' or the '.join(lacking)}, {len(seen.peek.understood.columns)} to choose from"
        return "line {}: {}".format(*seen.peek.fault) if seen.peek.fault else "no rows"

    def doubts(self, path: str) -> Iterator[str]:
        """What may not be meant as it will be read."""
        seen = self.seen(path)
        if not isinstance(seen, Look) or not seen.usable:
            return
        for name, column in self.own(path).items():
            if not {*alternatives(column)} & {*seen.peek.understood.columns}:
                yield f"no column '{column}' for the {name}"
        if seen.peek.fault:
            line, reason = seen.peek.fault
            yield f"line {line}: {reason}, skipped" + (f", {seen.peek.bad - 1} more" if seen.peek.bad > 1 else "")
        if seen.guessed:
            first = nameless(seen.peek.understood.format, seen.guessed)
            yield f"{' and '.join(seen.guessed)} guessed from what the columns hold{first and f'; {first}'}"
        yield from seen.peek.warnings

    def command(self) -> str:
        """The command line of all this."""
        words = ["index", *(quote(f"./{path}" if path.startswith("-") else path) for path in self.used("pool"))]
        for name in USES[1:3]:
            words += [f"--{name} {quote(path)}" for path in self.used(name)]
            if share := self.shares.get(name):
                words.append(f"--{name}-fraction {quote(share)}")
        words += [f"--map {quote(f'{key}={column}')}" for key, column in self._mapping()]
        if labels := self._wanted(SHARED).labels:
            words.append(f"--labels {quote(','.join(labels))}")
        return " ".join(words)

    def _mapping(self) -> Iterator[tuple[str, str]]:
        """As ``--map`` takes it: a column that all files share once, others by file."""
        columns = {path: self.columns(path) for path in self.used()}
        for name in FIELDS:
            given = {path: own[name] for path, own in columns.items() if name in own}
            if given and len(given) == len(columns) and len({*given.values()}) == 1:
                yield name, next(iter(given.values()))
            else:
                yield from ((f"{_as_key(path)}{OF_FILES}{name}", column) for path, column in given.items())


def _as_key(path: str) -> str:
    """A file as ``--map`` names it: in its own name, ``[1]`` is no set of letters."""
    return glob.escape(path) if glob.has_magic(path) and Path(path).exists() else path
