"""Decisions on the pool, made one after the other in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import App

from .dialogs.confirm import Confirm
from .workers import BackgroundWork

if TYPE_CHECKING:
    from ..engine.store.decisions import Action as Verb
    from ..engine.store.decisions import Change, Scope
    from ..engine.store.workspace import Workspace

SMALL_CHANGE = 20
"""A decision on at most this many demonstrations needs no confirmation: one key undoes it."""

Work = Callable[["Workspace"], "tuple[Change, bool]"]
Targets = Sequence[str] | Callable[["Workspace"], Sequence[str]]
"""Ids or names, or a function that looks them up."""


class DecisionQueue(BackgroundWork):
    """The app's interface to `store.decisions`. A decision waits until earlier ones are written, so that ``x`` and then
    ``u`` never change order."""

    def opened(self, create: bool = False) -> Workspace:
        raise NotImplementedError

    def decided(self, change: Change) -> None:
        """A decision was made; the tabs are reloaded."""
        raise NotImplementedError

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
            return decide(workspace, verb, scope, names, reason, dry_run=dry_run)

        self._confirmed(carry_out, then)

    def relabel(
        self, outputs: Mapping[str, str], reason: Sequence[str], then: Callable[[], None] | None = None
    ) -> None:
        """See `tab.ReviewSession.relabel`."""

        def carry_out(workspace: Workspace, dry_run: bool) -> Change:
            from ..engine.store.decisions import relabel

            return relabel(workspace, outputs, reason, dry_run=dry_run)

        self._confirmed(carry_out, then)

    def _confirmed(self, carry_out: Callable[[Workspace, bool], Change], then: Callable[[], None] | None) -> None:
        """Carry out a decision (the argument says whether as a dry run), a large one if the user confirms it."""

        def work(workspace: Workspace, sure: bool) -> tuple[Change, bool]:
            """The change, and whether it was made; a large one waits until the user is ``sure``."""
            change = carry_out(workspace, not sure)
            if not sure and _size(change) <= SMALL_CHANGE:
                return carry_out(workspace, False), True
            return change, sure

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
        self.in_turn("decide", lambda: work(self.opened()), lambda made: then(*made))


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _size(change: Change) -> int:
    """How many demonstrations it affects."""
    return len(change.targets) if change.action == "relabel" else abs(change.active_before - change.active_after)


def _question(change: Change) -> Confirm:
    names = ", ".join(change.targets[:6]) + (" …" if len(change.targets) > 6 else "")
    return Confirm(
        f"{change.action} {counted(len(change.targets), change.scope)}?",
        [names, f"active demonstrations: {change.active_before:,} now, {change.active_after:,} after"],
    )
