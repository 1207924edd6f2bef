"""Decisions on the pool, made one after the other in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import App

from ..engine.base.errors import CurateError, counted
from .dialogs.confirm import Confirm
from .workers import BackgroundWork

if TYPE_CHECKING:
    from ..engine.store.decisions import Action as Verb
    from ..engine.store.decisions import Change, Revision, Scope
    from ..engine.store.workspace import Workspace

SMALL_CHANGE = 20
"""A decision on at most this many demonstrations needs no confirmation, unless a label goes with them: one key undoes
it."""

HELD = 2.0
"""Seconds for which keys wait at most: another process may hold the workspace for longer."""

Work = Callable[["Workspace"], "tuple[Change, bool]"]
Targets = Sequence[str] | Callable[["Workspace"], Sequence[str] | Mapping[str, str]]
"""Ids or names, or a function that looks them up, with the reason for each if it returns a mapping."""

Outputs = Mapping[str, str] | Callable[["Workspace"], Mapping[str, str]]
"""New outputs by id, or a function that looks the ids up."""


class DecisionQueue(BackgroundWork):
    """The app's interface to `store.decisions`. A decision waits until earlier ones are written, so that ``x`` and then
    ``u`` never change order."""

    def opened(self, create: bool = False) -> Workspace:
        raise NotImplementedError

    deciding = False
    """A decision is being looked at or written, for `HELD` seconds at most."""
    _turn_of_keys = 0
    _keys: tuple[str, ...] = ()
    """Those that wait."""

    def decided(self, change: Change) -> None:
        """A decision was made; the tabs are reloaded."""
        raise NotImplementedError

    def hold(self, key: str) -> None:
        """Let a key wait until it is known whether the decision asks."""
        self._keys = (*self._keys, key)

    def decide(
        self,
        verb: Verb,
        scope: Scope,
        targets: Targets,
        reason: str | Sequence[str] = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """See `tab.ReviewSession.decide`."""

        def carry_out(workspace: Workspace, dry_run: bool) -> Change:
            from ..engine.store.decisions import decide

            names = targets(workspace) if callable(targets) else targets
            why = list(names.values()) if isinstance(names, Mapping) else reason
            return decide(workspace, verb, scope, list(names), why, dry_run=dry_run)

        self._confirmed(carry_out, then)

    def relabel(self, outputs: Outputs, reason: Sequence[str], then: Callable[[], None] | None = None) -> None:
        """See `tab.ReviewSession.relabel`."""

        def carry_out(workspace: Workspace, dry_run: bool) -> Change:
            from ..engine.store.decisions import relabel

            found = outputs(workspace) if callable(outputs) else outputs
            return relabel(workspace, found, reason, dry_run=dry_run)

        self._confirmed(carry_out, then)

    def revise(self, revision: Revision, reason: str = "", then: Callable[[], None] | None = None) -> None:
        """See `tab.ReviewSession.revise`."""

        def carry_out(workspace: Workspace, dry_run: bool) -> Change:
            from ..engine.store.decisions import revise

            return revise(workspace, revision, reason, dry_run=dry_run)

        self._confirmed(carry_out, then, always=True)

    def _confirmed(
        self, carry_out: Callable[[Workspace, bool], Change], then: Callable[[], None] | None, always: bool = False
    ) -> None:
        """Carry out a decision (the argument says whether as a dry run). One that is large, or with which a label
        vanishes, is carried out if the user confirms it, and so is every one with ``always``."""

        def work(workspace: Workspace, sure: bool) -> tuple[Change, bool]:
            """The change, and whether it was made; one to confirm waits until the user is ``sure``."""
            change = carry_out(workspace, not sure)
            if sure or always or is_asked(change):
                return change, sure
            return carry_out(workspace, False), True

        def made(change: Change, done: bool) -> None:
            if not done:
                cast(App[Any], self).push_screen(_question(change), confirmed)
                return
            self.decided(change)
            if then is not None:
                then()

        def confirmed(yes: bool | None) -> None:
            if yes:
                self._decide(lambda workspace: work(workspace, True), made)

        self._decide(lambda workspace: work(workspace, False), made)

    def undo(self, then: Callable[[], None] | None = None) -> None:
        """Undo the latest decision, then call ``then``."""

        def work(workspace: Workspace) -> tuple[Change, bool]:
            from ..engine.store.decisions import undo

            return undo(workspace), True

        def made(change: Change, _: bool) -> None:
            self.decided(change)
            if then is not None:
                then()

        self._decide(work, made)

    def _decide(self, work: Work, then: Callable[[Change, bool], None]) -> None:
        def made(result: tuple[Change, bool]) -> None:
            then(*result)
            self._end_deciding()

        self.deciding = True
        self._turn_of_keys = turn = self._turn_of_keys + 1
        self.set_timer(HELD, lambda: self._end_deciding() if turn == self._turn_of_keys else None)
        self.in_turn("decide", lambda: work(self.opened()), made)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "decide":
            self._end_deciding()

    def _end_deciding(self) -> None:
        if self.deciding:
            keys, self._keys, self.deciding = self._keys, (), False
            for key in keys:
                cast(App[Any], self).simulate_key(key)


def is_asked(change: Change) -> bool:
    """Whether the user has to confirm it: it affects many demonstrations, or a label vanishes."""
    affected = len(change.targets) if change.action == "relabel" else abs(change.active_before - change.active_after)
    return affected > SMALL_CHANGE or bool(change.effects.labels_gone)


def notice(change: Change) -> str:
    """What a decision has done."""
    from ..render.decisions import effect_lines, rows_line

    what = "undid decision" if change.action == "undo" else f"{change.action} {_targets(change)}"
    return "\n".join([what, rows_line(change), *effect_lines(change)])


def _targets(change: Change) -> str:
    """The number of its targets: ``2 sources``, ``5 sources and demonstrations``."""
    count, scope = len(change.targets), change.scope
    return f"{count:,} sources and demonstrations" if " and " in scope else counted(count, scope)


def _question(change: Change) -> Confirm:
    from ..render.decisions import effect_lines, rows_line
    from ..render.pool import names_of

    names = names_of(change.targets, 6)
    return Confirm(f"{change.action} {_targets(change)}?", [names, rows_line(change), *effect_lines(change)])
