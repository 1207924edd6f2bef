"""What is said of a gain that is not beyond noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from icl_curate.engine.curate.results import CandidateResult, Confirmation, ServingSettings, TuneReport
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.llm.marks import Tally

ALL = CandidateResult("keep everything", "", (), 0, 20, 0.5, None, None, False)
BEST = replace(ALL, name="noisy", pruned_rows=3, accuracy=0.56, chosen=True)
SHORT = TuneReport(
    run=1, llm="stub", usage=Usage(40, 0, 0, 400, 40), served=ServingSettings("bm25", 3, "best-last"), estimator="",
    proposed="noisy", pruned=(), pruned_rows=(), kept=("clean",), validation_before=0.5,
    validation_after=0.5, gain=0.06, gain_error=0.05, worth_it=False,
    confirmed=Confirmation(0.5, 0.56, 0.06, -0.038, 0.158, 40, 20, 24), candidates=(ALL, BEST), stopped="",
    known=(), instead=(), noise=1.645,
)  # fmt: skip


def test_the_queries_that_would_do_are_those_at_which_the_error_is_small_enough() -> None:
    """The standard error falls with the root of the queries: 20 of them leave .05, n leave .05 · √(20 / n)."""
    enough = min(n for n in range(1, 1000) if 1.645 * 0.05 * (20 / n) ** 0.5 <= 0.06)
    half = f"such a gain is confirmed in half of the runs with {enough} queries"
    assert SHORT.doubt == f"1.20 of 1.65 standard errors; {half}"
    assert SHORT.level is not None and SHORT.level * 0.05 < SHORT.gain <= (SHORT.level + 0.1) * 0.05


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"worth_it": True}, "not shown: 1.20 standard errors"),
        ({"worth_it": True, "gain": 0.09}, ""),
        ({"gain": 0.001}, "0.02 of 1.65 standard errors"),  # 135,301 queries
        ({"gain": -0.01}, ""),
        ({"gain": 0.0}, ""),
        ({"gain_error": None}, ""),
        ({"confirmed": None}, ""),
        ({"noise": None}, ""),
        ({"candidates": (replace(ALL, chosen=True), replace(BEST, chosen=False))}, ""),
        ({"outcomes": Tally(failed=20, reason="the server is down")}, ""),
    ],
)
def test_what_is_shown_or_not_gained_is_not_in_doubt(change: dict[str, Any], said: str) -> None:
    other = replace(SHORT, **change)
    assert (other.doubt, other.level) == (said, None)
    assert (", not shown" in other.reason) == said.startswith("not shown")


def test_no_level_is_named_where_the_same_command_would_ask_more() -> None:
    assert replace(SHORT, stopped="the budget was enough for 20 of 24 queries").level is None
