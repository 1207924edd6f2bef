"""Decisions on the pool, made one after the other in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from textual.app import App

from ..engine.base.errors import CurateError, counted
from .workers import BackgroundWork

if TYPE_CHECKING:
    from ..engine.store.decisions import Action as Verb
    from ..engine.store.decisions import Change, DecisionBatch, Revision, Scope
    from ..engine.store.workspace import Workspace
    from .dialogs.dialog import Confirm

SMALL_CHANGE = 20
"""A decision on at most this many demonstrations needs no confirmation, unless a label goes with them: one key undoes
it."""

HELD = 2.0
"""Seconds for which keys wait at most: another process may hold the workspace for longer."""

CarryOut = Callable[[Any, "Workspace", bool], "Change"]
"""Makes a decision with `store.decisions`, which is imported after the first paint; the last argument: as a dry run."""

Then = Callable[[], Callable[[], None] | None] | None
"""What follows once a decision was made, or was made again; it may return what follows once that is undone."""

Targets = Sequence[str] | Callable[["Workspace"], Sequence[str] | Mapping[str, str]]
"""Ids or names, or a function that looks them up when it is the decision's turn, in a thread, with the reason for each
if it returns a mapping: so decisions keep the order of the keys."""


class DecisionQueue(App[None], BackgroundWork):
    """The app's interface to `store.decisions`. A decision waits until earlier ones are answered and written, so that
    ``x`` and then ``u`` never change order."""

    latest: tuple[Any, str] | None = None
    """The last decision on rows, and the output that it gave them: it can be repeated."""

    deciding = False
    """It is not known yet whether a decision asks, or one is being written; for `HELD` seconds at most."""

    undecided = 0
    """Decisions that are neither made nor refused yet."""

    leaving = False
    """The app ends once all are made."""

    def __init__(self) -> None:
        super().__init__()
        self.in_turn = asyncio.Lock()
        """Held while a decision is asked about and made."""
        self._keys: list[str] = []
        """Those that wait while it is ``deciding``."""
        self._turn_of_keys = 0
        self._begun = datetime.now(UTC).replace(tzinfo=None)  # as the workspace has times
        self._own: set[int] = set()
        """The decisions of this session, by number."""
        self._follows: dict[int, tuple[Callable[[], object], Callable[[], None]]] = {}
        """By their number, what follows if they are made again, and if they are undone."""

    def opened(self, create: bool = False) -> Workspace:
        raise NotImplementedError

    def decided(self, change: Change) -> None:
        """A decision was made; the tabs are reloaded."""

    def decide(
        self, verb: Verb, scope: Scope, targets: Targets, reason: str | Sequence[str] = "", then: Then = None
    ) -> None:
        """Make a decision; if it affects many rows, or a label vanishes, the user sees the counts and confirms first.
        ``then`` is called after it was made. ``reason`` is one for all targets, or one for each."""

        def carry_out(store: Any, workspace: Workspace, dry_run: bool) -> Any:
            names = targets(workspace) if callable(targets) else targets
            why = list(names.values()) if isinstance(names, Mapping) else reason
            return store.decide(workspace, verb, scope, list(names), why, dry_run=dry_run)

        self._decide(carry_out, is_asked, then)

    def decide_rows(self, verb: Verb, rows: Sequence[int], reason: str | Sequence[str] = "", then: Then = None) -> None:
        """The same on demonstrations by their rows; it fails if one is no longer in its file as it is shown."""
        from ..engine.store.decisions import ids_in_pool  # after the first paint

        self.decide(verb, "demonstration", lambda workspace: ids_in_pool(workspace, rows), reason, then)

    def relabel(
        self, outputs: Mapping[int, str], reason: str | Sequence[str], then: Then = None, more: str = ""
    ) -> None:
        """Correct outputs, by row, like `decide_rows`. ``more`` is told in the question."""

        def carry_out(store: Any, workspace: Workspace, dry_run: bool) -> Any:
            ids = store.ids_in_pool(workspace, list(outputs))
            return store.relabel(workspace, dict(zip(ids, outputs.values(), strict=True)), reason, dry_run=dry_run)

        self._decide(carry_out, is_asked, then, lambda: more)

    def revise(self, revision: Revision, reason: str = "", then: Then = None) -> None:
        """Prune sources and demonstrations, and correct outputs, as one decision, which the user always confirms."""
        carry_out = lambda store, workspace, dry: store.revise(workspace, revision, reason, dry_run=dry)  # noqa: E731
        self._decide(carry_out, lambda change: True, then)

    def undo(self, then: Then = None) -> None:
        """Undo the latest decision of any user, then call ``then``. One that others have made since this session began
        is named, and confirmed, first. If another one has become the latest by then, nothing is undone."""
        latest: list[DecisionBatch] = []

        def carry_out(store: Any, workspace: Workspace, dry_run: bool) -> Any:
            change = store.undo(workspace, dry_run=dry_run, expected=None if dry_run else latest[0].batch)
            if dry_run:
                latest[:] = [made for made in store.history(workspace) if [str(made.batch)] == [*change.targets]]
            return change

        def is_others(_: Change) -> bool:
            return any(made.decided_at > self._begun and made.batch not in self._own for made in latest)

        def told() -> str:
            from ..render.pool import decided

            return "".join(f" by {made.who}: {made.action} {decided(made)}" for made in latest)

        self._decide(carry_out, is_others, then, told)

    def redo(self, then: Then = None) -> None:
        """Bring back what was undone last, then call ``then``."""
        self._decide(lambda store, workspace, _: store.redo(workspace), None, then)

    def _decide(
        self, carry_out: CarryOut, asks: Callable[[Change], bool] | None, then: Then, more: Callable[[], str] = str
    ) -> None:
        """Make a decision when it is its turn. Where the dry run ``asks``, the user confirms it first, and is told
        ``more``; None: it needs no dry run."""

        def made(dry_run: bool) -> Change:
            from ..engine.store import decisions

            return carry_out(decisions, self.opened(), dry_run)

        async def in_turn() -> None:
            async with self.in_turn:
                try:
                    if asks is not None:
                        change = await self.thread(lambda: made(True))
                        if asks(change):
                            answer = self.push_screen(_question(change, more()), wait_for_dismiss=True)
                            self._release_keys()  # they may be meant for the question
                            if not await answer:
                                return
                            self._hold_keys()
                    change = await self.thread(lambda: made(False))
                except CurateError as error:
                    self.leaving = False  # it has something to read
                    self.failed("decide", error)
                else:
                    self._own.add(change.batch)
                    self.decided(change)
                    if then is not None and (back := then()) is not None:
                        self._follows[change.batch] = then, back
                    if change.scope == "batch" and (follow := self._follows.get(int(change.targets[0]))):
                        follow[change.action == "undo"]()
                if self.undecided == 1:  # else keys may be meant for the question of the next one
                    self._release_keys()

        async def to_the_end() -> None:
            try:
                await in_turn()
            finally:
                self.undecided -= 1
            if self.leaving and not self.undecided:
                self.action_leave()

        self.undecided += 1
        self._hold_keys()
        self.in_worker(to_the_end, "decide")

    def save(self) -> None:
        raise NotImplementedError

    def action_leave(self) -> None:
        """Decisions may wait for another process: the first time they are waited for."""
        self.save()
        left = f"{counted(self.undecided, 'decision')} not made" if self.undecided else None
        if left and not self.leaving:
            self.leaving = True
            self.notify(f"{left} yet: quits after it; q again quits without it", severity="warning")
        else:
            self.exit(message=left)

    # Keys that may be meant for the question.

    def hold(self, key: str) -> None:
        """Let a key wait until it is known whether the decision asks."""
        self._keys.append(key)

    def _hold_keys(self) -> None:
        self.deciding = True
        self._turn_of_keys = turn = self._turn_of_keys + 1
        self.set_timer(HELD, lambda: self._release_keys() if turn == self._turn_of_keys else None)

    def _release_keys(self) -> None:
        keys, self._keys, self.deciding = self._keys, [], False
        for key in keys:
            self.simulate_key(key)


def is_asked(change: Change) -> bool:
    """Whether the user has to confirm it: it affects many demonstrations, or a label vanishes."""
    affected = len(change.targets) if change.action == "relabel" else abs(change.active_before - change.active_after)
    return affected > SMALL_CHANGE or bool(change.effects.labels_gone)


DID = {
    "prune": "pruned",
    "restore": "restored",
    "keep": "kept",
    "relabel": "corrected",
    "undo": "undid",
    "redo": "did again",
}
"""Actions of decisions as what was done."""


def notice(change: Change) -> str:
    """What a decision has done, what that changed, and the key that takes it back."""
    from ..render.decisions import effect_lines, targets_of

    back = change.action in ("undo", "redo")
    what = f"{DID[change.action]} {f'#{change.targets[0]}' if back else targets_of(change)}"
    if change.active_before != change.active_after:
        what += f": {change.active_before:,} → {change.active_after:,}"
    return "\n".join([what, *effect_lines(change), "U: again" if change.action == "undo" else "u: undo"])


def _question(change: Change, more: str) -> Confirm:
    from ..render.decisions import effect_lines, rows_line, targets_of
    from ..render.pool import decided
    from .dialogs.dialog import Confirm  # after the first paint

    return Confirm(
        f"{change.action} {targets_of(change)}?", [decided(change, 6) + more, rows_line(change), *effect_lines(change)]
    )
