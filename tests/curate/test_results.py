"""What is said of a gain that is likely and not beyond noise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from icl_curate.engine.curate.results import Confirmation, ServingSettings, TuneReport
from icl_curate.engine.llm.cost import Usage

SHORT = TuneReport(
    run=1, llm="stub", usage=Usage(40, 0, 0, 400, 40), served=ServingSettings("bm25", 3, "best-last"), estimator="",
    threshold=None, proposed="noisy", pruned=(), pruned_rows=(), kept=("clean",), validation_before=0.5,
    validation_after=0.5, gain=0.06, gain_error=0.05, worth_it=False,
    confirmed=Confirmation(0.5, 0.56, 0.06, -0.038, 0.158, 40, 20, 24), candidates=(), stopped="",
    known=(), instead=(), noise=1.645,
)  # fmt: skip


def test_the_queries_that_would_tell_are_those_at_which_the_error_is_small_enough() -> None:
    """The standard error falls with the root of the queries: 20 of them leave .05, n leave .05 · √(20 / n)."""
    enough = min(n for n in range(1, 1000) if 1.645 * 0.05 * (20 / n) ** 0.5 <= 0.06)
    assert (
        SHORT.doubt
        == f"1.2 of 1.6 standard errors: about {enough} queries would tell, --noise 1.1 takes it all the same"
    )
    assert 1.1 * 0.05 < SHORT.gain <= 1.2 * 0.05


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"worth_it": True}, "likely, not shown: 1.2 standard errors"),
        ({"worth_it": True, "gain": 0.09}, ""),
        ({"gain": -0.01}, ""),
        ({"gain": 0.0}, ""),
        ({"gain": 0.001}, "0.0 of 1.6 standard errors: --noise 0.0 takes it all the same"),  # 135,301 queries
        ({"gain_error": None}, ""),
        ({"confirmed": None}, ""),
        ({"noise": None}, ""),
    ],
)
def test_what_is_shown_or_not_gained_is_not_in_doubt(change: dict[str, object], said: str) -> None:
    assert replace(SHORT, **change).doubt == said
