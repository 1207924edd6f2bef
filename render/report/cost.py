"""What the LLMs were asked, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from .document import Block, Column, Paragraph, Table
from .words import NAME, name_of

if TYPE_CHECKING:
    from ...engine.report.results import LLMCost


def blocks(costs: Sequence[LLMCost], encoder: str | None) -> Iterator[Block]:
    if not costs:
        yield Paragraph("No LLM was asked.")
        return
    columns = (
        Column("LLM"), Column("calls", number=True), Column("prompt tokens", number=True),
        Column("answer tokens", number=True), Column("failed", number=True), Column("US$", number=True),
        Column("from (UTC)"), Column("to (UTC)"),
    )  # fmt: skip
    rows = [
        (
            name_of(one.llm), f"{one.calls:,}", f"{one.tokens_in:,}", f"{one.tokens_out:,}", f"{one.failures:,}",
            _dollars(one), one.first_at, one.last_at,
        )
        for one in costs
    ]  # fmt: skip
    notes = ["Every answer the workspace keeps, each counted once: repeats come from its cache and cost nothing."]
    notes += [
        f"{one.llm[:NAME]}: US$ {one.price_in:g} and {one.price_out:g} per million prompt and answer tokens."
        for one in costs
        if one.dollars is not None and not one.local
    ]
    notes += ["Vectors from a server are not counted."] if (encoder or "").startswith("openai:") else []
    yield Table("Answers by LLM", columns, tuple(rows), " ".join(notes))


def paid(costs: Sequence[LLMCost]) -> str:
    calls, tokens = sum(one.calls for one in costs), sum(one.tokens_in + one.tokens_out for one in costs)
    text = f"It took {counted(calls, 'call')} and {counted(tokens, 'token')}"
    charged = [one for one in costs if not one.local]
    if not charged:
        return f"{text}, on this machine."
    known = [one.dollars for one in charged if one.dollars is not None]
    unknown = len(charged) - len(known)
    paid = [f"US$ {sum(known):,.2f}"] if known else []
    paid += [f"the price of {unknown:,} LLM{'s' if unknown > 1 else ''} is not known"] if unknown else []
    return f"{text}: {'; '.join(paid)}."


def _dollars(one: LLMCost) -> str:
    if one.local:
        return "0, local"
    return "not known" if one.dollars is None else f"{one.dollars:,.2f}"
