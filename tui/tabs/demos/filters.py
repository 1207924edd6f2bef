"""Lists from which the filters of the Demos tab are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ....engine.pool.records import SPLITS
from ....engine.store.browse import tally
from ...dialogs.choose import Choose
from ...tab import Tab
from .model import DemosModel


def choose_filter(tab: Tab, model: DemosModel, changed: Callable[[], None], clear: Callable[[], None]) -> None:
    """Choose a filter and then its value, or switch to its next one; ``changed`` is called when the model has it."""

    def switch(change: Callable[[], None]) -> Callable[[], None]:
        def do() -> None:
            change()
            changed()

        return do

    calls = (
        lambda: _choose_value(tab, model, changed, "source"),
        lambda: _choose_value(tab, model, changed, "output"),
        lambda: _choose_split(tab, model, changed),
        switch(model.next_state),
        switch(model.next_only),
        switch(model.switch_repeats),
        clear,
    )

    def chosen(at: int | None) -> None:
        if at is not None:
            calls[at]()

    tab.app.push_screen(Choose("Filter by", model.choices()), chosen)


def _choose_value(
    tab: Tab, model: DemosModel, changed: Callable[[], None], column: Literal["source", "output"]
) -> None:
    """Choose an existing value of a column. The list opens at once, so that it gets the keys, and is filled when the
    values were counted."""
    field = "label" if column == "output" else column
    split = model.asked.filter.split
    values: list[str | None] = [None]
    choose = Choose(f"{column} of {split}")

    def pick(found: list[tuple[str, int]]) -> None:
        values.extend(value for value, _ in found)
        now = getattr(model.asked.filter, field)
        options = [("all", ""), *((value, f"{count:,}") for value, count in found)]
        choose.fill(options, values.index(now) if now in values else 0)

    def taken(at: int | None) -> None:
        tab.forget("tally")
        if at is not None:
            model.filter_by(**{field: values[at]})
            changed()

    tab.app.push_screen(choose, taken)
    tab.in_thread("tally", lambda: tally(tab.review.opened(), column, split), pick)


def _choose_split(tab: Tab, model: DemosModel, changed: Callable[[], None]) -> None:
    def taken(at: int | None) -> None:
        if at is not None:
            model.filter_by(split=SPLITS[at])
            changed()

    options = [(name, "") for name in SPLITS]
    tab.app.push_screen(Choose("split", options, SPLITS.index(model.asked.filter.split)), taken)
