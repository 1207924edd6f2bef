"""Problems: suspects, repeats, leaks and skipped records, one list at a time."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from ....engine.base.errors import counted
from ....engine.export.verified import FILE
from ....engine.store.overview import Overview, overview
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.dialog import Confirm
from ...dialogs.verify import Verify
from ...model import POOL_EMPTY, PROBLEMS, Empty, beside
from ...tab import Tab
from ...widgets.lines import names_line
from ...widgets.table import LineTable
from .lists import LeaksList, ProblemList, RepeatsList, SkippedList
from .model import NAMES, ProblemsModel
from .suspects_list import SuspectsList


class ProblemsTab(Tab):
    NAME = "problems"
    TITLE = "Problems"
    ABOUT = "Rows that may be wrong, repeat others or leak, and records that index skipped."
    TERMS = ("suspect", "posterior", "duplicate", "leak", "prune, restore")
    ACTIONS = (
        Action("problems.next", "tab", "Next list", "Go to the next list", "", False, "step(1)"),
        Action("problems.previous", "shift+tab", "Previous list", "Go to the previous list", "", False, "step(-1)"),
        *(
            Action(f"problems.{name}", key, name.capitalize(), f"Show {what}", cli, False, f"list('{name}')")
            for name, (key, what, cli) in PROBLEMS.items()
        ),
        Action("problems.verify", "t", "Verify", "Verify rows drawn at random: they teach check which labels are right",
               "icl-curate verify"),
    )  # fmt: skip
    PARTS = (SuspectsList, RepeatsList, LeaksList, SkippedList)

    def __init__(self) -> None:
        super().__init__()
        self.model: ProblemsModel = ProblemsModel()

    def compose_body(self) -> ComposeResult:
        yield Static(id="lists", markup=False)
        for kind in self.PARTS:
            one = kind()
            one.display = one.id == self.model.shown
            yield one

    @property
    def shown(self) -> ProblemList:
        """The list that is shown."""
        return self.query_one(f"#{self.model.shown}", ProblemList)

    @property
    def table(self) -> LineTable:
        return self.shown.table

    def read(self, workspace: Workspace) -> Overview | Empty:
        state = overview(workspace)
        return state if state.pool or state.skipped else POOL_EMPTY

    def show(self, state: Overview) -> None:
        self.model.take(state)
        self._draw_names()
        self.shown.look_again()

    def copied(self) -> str:
        return self.shown.copied()

    def command(self) -> str:
        return PROBLEMS[self.model.shown][2]

    async def action_list(self, name: str) -> None:
        """Show the list with this name; the one that is shown already is read anew."""
        self.tell_trouble("")  # that of another list
        if name == self.model.shown:
            self.shown.look_again(anew=True)
        self.model.shown = name
        for one in self.query(ProblemList):
            one.display = one.id == name
        self._draw_names()
        self.call_after_refresh(self.take_focus)

    def action_verify(self) -> None:
        if why := self.review.refuses(("verify",)):  # it writes a file
            self.failed("verify", why)
        else:
            self.ask(Verify(), self._offer_index)

    def _offer_index(self, verified: int) -> None:
        """Offer to read the verified rows. Enter does not confirm: it may be meant for another row."""
        command = f"index --validation {FILE}"
        if verified:
            title = f"Read {counted(verified, 'verified row')} as validation queries?"
            question = Confirm(title, [f"icl-curate {command}"])
            self.app.push_screen(question, lambda yes: self.review.action_run(command) if yes else None)

    def _draw_names(self) -> None:
        key = self.review.keys_of(self.ACTIONS[0])
        counts = {name: self.model.counts.get(name) for name in NAMES}
        self.query_one("#lists", Static).update(names_line(counts, self.model.shown, key))

    async def action_step(self, by: int) -> None:
        await self.action_list(beside(NAMES, self.model.shown, by))
