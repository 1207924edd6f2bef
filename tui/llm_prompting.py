"""LLM calls from a tab: first the cost, then the answers, stopped by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.base.errors import CurateError
from ..engine.base.progress import CancelToken
from ..engine.llm.asking import destination
from ..engine.llm.cost import DryRun, Plan
from ..engine.pool.display import display_line
from ..engine.store.settings import Settings
from ..render.costs import plan_rows
from .dialogs.confirm import Confirm
from .tab import Tab
from .workers import error_text


class LLMTab(Tab):
    """A tab that calls the LLM itself, one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asking: CancelToken | None = None
        self._destination_shown = ""
        """The destination of prompts as last shown without a question."""

    def on_unmount(self) -> None:
        if self.asking:
            self.asking.cancel()

    def ask_llm(
        self,
        settings: Settings,
        cost: Callable[[], Plan],
        ask: Callable[[CancelToken], Any],
        then: Callable[[Any], None],
        begun: Callable[[], None],
    ) -> None:
        """Run ``cost`` and ``ask`` in threads: at once if nothing has to be paid, else after the user's confirmation.
        ``begun`` is called when the requests start, ``then`` with their result."""
        if self.asking:
            self.notify("waiting for the LLM; escape stops it")
            return

        def go() -> None:
            self.asking = cancel = CancelToken()
            self.review.session_cache().asked = True
            begun()
            self.in_thread("ask", lambda: ask(cancel), answered)

        def answered(result: Any) -> None:
            self.asking = None
            then(result)

        def costed(found: tuple[Plan, str]) -> None:
            plan, where = found
            if not plan.to_ask or plan.cost == (0.0, 0.0):
                if plan.to_ask and where and where != self._destination_shown:
                    self._destination_shown = where
                    self.notify(f"prompts go to {display_line(where)}", markup=False, timeout=4)
                go()
                return
            lines = [f"{name}: {value}" for name, value in plan_rows(DryRun(plan, where))]
            self.app.push_screen(Confirm(f"Ask {settings.llm}?", lines), lambda yes: go() if yes else None)

        self.in_thread("cost", lambda: (cost(), destination(settings)), costed)

    def stop(self) -> None:
        """Stop the running requests: no further call is sent."""
        if self.asking:
            self.asking.cancel()
            self.notify("stopping: calls in flight will finish and be saved", timeout=4)

    def failed(self, kind: str, error: CurateError) -> None:
        if kind != "ask":
            super().failed(kind, error)
            return
        self.asking = None
        self.ended()
        self.app.notify(error_text(error), severity="error", timeout=8, markup=False)

    def ended(self) -> None:
        """The requests failed or were stopped: undo what ``begun`` of `ask_llm` showed."""
