"""What an LLM's calls have really cost, kept in the workspace: a budget that learns it once need not learn it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from ..store import calls
from ..store.workspace import Workspace
from . import cache
from .budget import Budget


@contextmanager
def known(workspace: Workspace, budget: Budget) -> Iterator[None]:
    """The budget knows the dearest bill of its LLM, from its answers and from earlier runs; a dearer one that comes
    inside the block is kept. Without a limit of cost nothing is read or written."""
    if budget.max_cost is None or budget.price is None:
        yield
        return
    name = cache.canonical({"dearest bill": budget.llm})  # beside the probe: a call may be paid and give no answer
    prices = (budget.price.input_per_million, budget.price.output_per_million)
    if (answered := calls.dearest(workspace, budget.llm, *prices)) is not None:
        budget.learn(*answered)
    if (kept := calls.capabilities(workspace, name)) is not None:
        budget.learn(*json.loads(kept))
    before = budget.dearest
    try:
        yield
    finally:
        bill = budget.dearest
        if bill is not None and bill.cost > (before.cost if before else 0.0):
            calls.save_capabilities(workspace, name, json.dumps([bill.tokens_in, bill.tokens_out]))
