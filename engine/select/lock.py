"""The lock: which pool, models and settings were judged, so that a service loads exactly these.

`FILE` in the workspace names them by digest. `Selector.locked` and ``serve --locked`` select with its settings, and
refuse a workspace that is no longer what the lock says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from ..base.code import is_code, program_in
from ..base.contract import OPTIONAL, Reported, to_json
from ..base.errors import UsageError
from ..base.files import read_regular, replace_file
from ..base.packages import VERSION
from ..llm.graded import graded_by
from ..llm.marks import GradedBy
from ..store import runs
from ..store.demonstrations import active_digest
from ..store.settings import KINDS, Settings, check_settings, user_config
from ..store.versions import restored_digest
from ..store.workspace import Workspace
from .methods import METHODS

FILE = "icl-curate.lock"
LOCK_VERSION = 1
LARGEST = 8 << 20
"""Bytes of a lock that are read."""

SELECTING = (
    "encoder", "near_duplicate", "method", "retrieval_text", "k", "preselect", "order", "template",
    "template_text", "prompt_format", "instruction", "answer_prefix", "seed",
)  # fmt: skip
"""The settings that change which demonstrations a query gets, or the prompt that shows them."""

MAKE = "icl-curate lock"
OPTIONS = {"method": "--method", "k": "--shots", "order": "--order", "template": "--template"}
"""The settings that are options of the command."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was measured of it: accuracy, or another mean value, before and after, by which ``llm`` in which ``run``."""

    llm: str
    run: int
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Lock(Reported):
    """``rows`` active demonstrations with this ``digest``; ``models``: the digests of the trained files that the method
    reads, by file name; ``version``: the name under which the pool was saved, empty if it was not; ``graded_by``: by
    what answers were graded, None in locks of before."""

    kind = "lock"
    lock_version: int
    tool_version: str
    locked_at: str
    settings: Mapping[str, Any]
    rows: int
    digest: str
    models: Mapping[str, str]
    version: str
    judged: Judged | None = None
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)

    @property
    def command(self) -> str:
        """What locks the pool as it is now with the same settings. Code is named by the user alone."""
        usual = Settings()
        given = {
            option: str(self.settings[name])
            for name, option in OPTIONS.items()
            if self.settings[name] != getattr(usual, name)
        }
        return " ".join([MAKE, *(f"{option} {quote(value)}" for option, value in given.items() if not is_code(value))])

    def applied(self, settings: Settings) -> Settings:
        """``settings`` with those that were judged. Raises `UsageError` for a value that no setting may have, as the
        file may be anybody's, and if prompts were written by code that the user does not name, or that has changed
        since, as has the program that the settings name."""
        judged = str(self.settings.get("template", ""))
        if is_code(judged) and settings.template != judged:  # the lock came with the workspace
            named = f"ICL_CURATE_TEMPLATE={judged}, or set it in {user_config()}"
            raise UsageError(f"the lock names the template {judged}, which only you may", named)
        by = self.graded_by.template or "" if self.graded_by else ""
        name = by.partition(" ")[0]
        chosen = {each: self.settings[each] for each in SELECTING if each in self.settings}
        now = replace(settings, **chosen, own_prompts=program_in(name))
        try:
            check_settings(now)
        except UsageError as error:
            raise UsageError(f"the lock: {error.what}", MAKE) from error
        if is_code(name) and name in (now.template, now.llm) and by != now.prompted_by:
            again = f"{self.command} --template {name}" if name == now.template else self.command
            raise UsageError(f"{name} has changed since it was judged: {by}, now {now.prompted_by}", again)
        return now


def lock(
    workspace: Workspace,
    settings: Settings,
    version: str = "",
    judged: Judged | None = None,
    by: GradedBy | None = None,
) -> Lock:
    """Write the lock of the workspace as it is, with these settings; graded ``by`` what they say, if that is not given.
    Raises `UsageError` if no row is active, or if the method is not trained."""
    rows, digest = active_digest(workspace)
    if not rows:
        raise UsageError("no demonstration is active: there is nothing to lock", "icl-curate status")
    chosen = {name: getattr(settings, name) for name in SELECTING}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    models = _models(workspace, settings.method)
    by = by or graded_by(workspace, settings)
    locked = Lock(LOCK_VERSION, VERSION, when, chosen, rows, digest, models, version, judged, by)
    text = json.dumps(to_json(locked), indent=2, ensure_ascii=False) + "\n"
    replace_file(workspace.path / FILE, lambda file: file.write(text.encode()))
    return locked


def read_lock(workspace: Workspace) -> Lock:
    """The lock of a workspace. Raises `UsageError` if there is none, if it cannot be read, or if a newer release wrote
    it."""
    path = workspace.path / FILE
    try:
        locked = Lock.from_json(json.loads(read_regular(path, LARGEST)))
    except FileNotFoundError as error:
        raise UsageError(f"{workspace.path} has no {FILE}", MAKE) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", MAKE) from error
    if locked.lock_version > LOCK_VERSION:
        raise UsageError(f"{path} was written by release {locked.tool_version}", "pip install --upgrade icl-curate")
    for name, value in locked.settings.items():
        if name not in SELECTING or type(value) is not KINDS.get(name, str):
            raise UsageError(f"{path}: '{name}' is not a setting of this kind", MAKE)
    if lacks := {"method", "k"} - locked.settings.keys():
        raise UsageError(f"{path} does not say {' and '.join(sorted(lacks))}", MAKE)
    return locked


def check_lock(workspace: Workspace, locked: Lock) -> None:
    """Raise `UsageError` if the workspace is not what was locked."""
    rows, digest = active_digest(workspace)
    if digest != locked.digest:
        what = f"{rows:,} rows, {locked.rows:,} were locked" if rows != locked.rows else f"{rows:,} rows, other ones"
        raise UsageError(f"the active pool is not the one that was judged ({what})", _way_back(workspace, locked))
    method = str(locked.settings["method"])
    if _models(workspace, method) != dict(locked.models):
        raise UsageError(f"{method} has been trained again since it was judged", locked.command)


def _way_back(workspace: Workspace, locked: Lock) -> str:
    """What makes the pool that of the lock again, or the lock that of the pool. Where rows have changed, a version only
    prunes the new ones."""
    with suppress(UsageError):  # it was not saved, or deleted
        there, digest = restored_digest(workspace, locked.version)
        if digest == locked.digest:
            return f"icl-curate version restore {quote(locked.version)}; or {locked.command}"
        if there < locked.rows:
            gone = f"{locked.rows - there:,} of the locked rows changed in their files or are gone"
            return f"{gone}: icl-curate evaluate && {locked.command}"
    return locked.command


def graded_otherwise(workspace: Workspace, locked: Lock, settings: Settings) -> str:
    """In what the settings would grade otherwise than what was locked was graded; empty if in nothing."""
    changed = locked.graded_by.changed(graded_by(workspace, settings)) if locked.graded_by else ""
    return f"what was locked was graded otherwise than the settings say now: {changed}" if changed else ""


def _models(workspace: Workspace, method: str) -> dict[str, str]:
    """The digests of the files that the latest training of a method wrote, by run and name; empty if it needs none."""
    if method not in METHODS:
        raise UsageError(f"unknown method '{method}'", f"use one of: {', '.join(METHODS)}")
    kind = METHODS[method].trained
    if not kind:
        return {}
    done = runs.finished(workspace, kind)
    if not done:
        raise UsageError(f"{method} is not trained", f"icl-curate {kind.replace('-', ' ')}")
    written = runs.files(workspace)
    return {f"{past.run}/{name}": digest for past in done for name, digest in written.get(past.run, {}).items()}
