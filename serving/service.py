"""Selection for a serving process: many requests in few batches, over a pool that follows its workspace.

No HTTP here, and no LLM: `Service` selects in the caller's thread, while a thread of its own looks whether another
process has changed the workspace. If so, it loads the new pool beside the old one and puts it in its place, so that no
request waits for that.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..engine.base.errors import UsageError
from ..engine.pool.records import Query
from ..engine.retrieval.served import EncoderDown
from ..engine.retrieval.view import PoolView
from ..engine.select.selector import Selected, Selector, method_named, needs_of, short_of, shots_as_json, words_of
from ..engine.store.demonstrations import workspace_fingerprint
from ..engine.store.settings import Settings
from ..engine.store.workspace import FILE, WAL, Workspace

PATIENCE = 2.0
"""Seconds after which an encoder behind an API is not asked again: all requests wait meanwhile, and so does the end."""
LOOKS = 0.25
"""Seconds between two looks at the workspace's files."""

WARM_UP = "the first selection loads the indexes"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """Queries to select for by one method; with ``prompts`` the prompts are wanted, too."""

    queries: tuple[Query, ...]
    method: str
    k: int
    prompts: bool = False

    def alike(self, other: Ask) -> bool:
        """Whether both can be answered in one batch."""
        return (self.method, self.k, self.prompts) == (other.method, other.k, other.prompts)


Found = list[dict[str, Any]] | Exception
"""One object for each query, or why there is none."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """The pool at one time, and what it was read from."""

    view: PoolView
    stamp: object
    fingerprint: tuple[object, ...]


class Service:
    """Selects demonstrations with their reasons. Raises `WorkspaceError` if there is no workspace, and `UsageError` for
    an unknown method or if the pool cannot be served, for instance because it has no vectors. If ``locked``, it stays
    with the pool that it has read, whatever becomes of the workspace."""

    def __init__(self, path: Path, settings: Settings, looks: float = LOOKS, locked: bool = False) -> None:
        self.workspace, self.settings = Workspace.open(path), replace(settings, encoder_patience=PATIENCE)
        method_named(settings.method)
        stamp = self._stamp()
        self._pool = _Pool(PoolView(self.workspace, self.settings), stamp, workspace_fingerprint(self.workspace))
        self._warm(self._pool.view)
        self._looks, self._closed, self._locked = looks, threading.Event(), locked
        self._follower = threading.Thread(target=self._follow, name="follow-workspace", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """End the thread that follows the workspace; more than one call does no harm."""
        self._closed.set()
        self._follower.join()

    def health(self) -> dict[str, Any]:
        """``fingerprint`` changes with rows, decisions, the encoder and trained models. Raises `UsageError` if the
        active pool is empty."""
        pool = self._pool
        digest = hashlib.blake2b(repr(pool.fingerprint).encode(), digest_size=8).hexdigest()
        settings = self.settings
        return {"fingerprint": digest, "method": settings.method, "k": settings.k, "rows": int(pool.view.rows.size)}

    def answer(self, asks: Sequence[Ask]) -> list[Found]:
        """Select for requests that are `alike` in one batch. If that fails, each is tried alone, so that it fails only
        for those that cannot be answered; not if it is the encoder's server that fails."""
        try:
            chosen = self._select(asks[0], [query for ask in asks for query in ask.queries])
        except Exception as error:
            if len(asks) == 1 or isinstance(error, EncoderDown):
                return [error] * len(asks)
            return [alone for ask in asks for alone in self.answer([ask])]
        results: list[Found] = []
        for ask in asks:
            results.append(chosen[: len(ask.queries)])
            chosen = chosen[len(ask.queries) :]
        return results

    def _select(self, ask: Ask, queries: Sequence[Query]) -> list[dict[str, Any]]:
        selector = self._selector(self._pool.view, ask.method, ask.k)
        chosen = selector.select_many(queries)
        every = [_as_json(selector, query, shots) for query, shots in zip(queries, chosen, strict=True)]
        if ask.prompts:
            for told, query, shots in zip(every, queries, chosen, strict=True):
                told |= selector.prompt_with(query, shots).as_json()
        return every

    def _selector(self, view: PoolView, method: str, k: int) -> Selector:
        return Selector(self.workspace, settings=replace(self.settings, method=method, k=k), view=view)

    def _warm(self, view: PoolView) -> None:
        selector = self._selector(view, self.settings.method, self.settings.k)
        selector.select(Query(WARM_UP, fields=dict.fromkeys(selector.reads, "")))

    def _follow(self) -> None:
        told = ""
        while not self._closed.wait(self._looks):
            try:
                self._look()
                told = ""
            except Exception as error:  # the pool that is served stays; the next look tries again
                if (now := str(error)) != told:
                    _log.warning("the workspace has changed and cannot be read yet: %s", now)
                told = now

    def _look(self) -> None:
        """Serve the pool as it is now, if it has changed."""
        stamp, old = self._stamp(), self._pool
        if stamp == old.stamp or self._locked:
            return
        fingerprint, view = workspace_fingerprint(self.workspace), old.view
        if fingerprint != old.fingerprint:
            view = view.renewed()
            try:
                self._warm(view)
            except (UsageError, EncoderDown) as error:  # rows that were pruned are not to be served any longer
                _log.warning("the changed pool cannot be served: %s", error)
        self._pool = _Pool(view, stamp, fingerprint)

    def _stamp(self) -> object:
        """Of the database's files: it changes with them, and costs no opening of the database."""
        return tuple(_written(self.workspace.path / name) for name in (FILE, WAL))


def _as_json(selector: Selector, query: Query, shots: Sequence[Selected]) -> dict[str, Any]:
    """As ``preview --json`` has it, less the prompt."""
    fields = {
        "query": query.input,
        "method": selector.settings.method,
        "demonstrations": shots_as_json(shots, words_of(selector, query, shots)),
        "notes": list(short_of(selector, shots)),
    }
    if needs := needs_of(selector, query):
        fields["needs"] = [asdict(need) for need in needs]
    return fields


def _written(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:  # no log, or merged in between
        return None
    return state.st_mtime_ns, state.st_size
