"""Methods over values of one setting: shots and pre-selected candidates (paper 000, figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..base.errors import UsageError
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.judge import Judge
from ..store.settings import Settings
from .compare import Evaluation, EvaluationPlan, cost_of
from .results import SweepPoint, SweepReport, Swept

LEAST: Mapping[Swept, int] = {"k": 0, "preselect": 1}
"""The settings that can be swept, and their smallest values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """One setting and its values, in the order given."""

    setting: Swept
    values: tuple[int, ...]

    def settings(self, base: Settings, value: int) -> Settings:
        """``base`` with one value. ``preselect`` holds for trained policies, too, whatever they were trained with."""
        if self.setting == "k":
            return replace(base, k=value)
        return replace(base, preselect=value, policy_candidates=value)


def sweep_named(text: str) -> SweepPlan:
    """From ``k=0,1,2,5``. Raises `UsageError` for another setting or values that are not different whole numbers."""
    name, _, given = text.partition("=")
    fix = "--sweep k=0,1,2,5 or --sweep preselect=10,20,50"
    setting = next((each for each in LEAST if each == name.strip()), None)
    if setting is None:
        raise UsageError(f"cannot sweep '{name.strip()}'", fix)
    try:
        values = tuple(int(value) for value in given.split(","))
    except ValueError as error:
        raise UsageError(f"--sweep {text}: the values must be whole numbers", fix) from error
    if min(values) < LEAST[setting] or len(set(values)) < len(values):
        raise UsageError(f"--sweep {text}: the values must differ, and be {LEAST[setting]} or more", fix)
    return SweepPlan(setting=setting, values=values)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A prepared evaluation for each value of a ``setting``; `cost` and `ask` as those of `Evaluation`, over all
    values.

    Values share the call cache: ``zero`` and prompts that do not depend on the value are asked once.
    """

    setting: Swept
    evaluations: Mapping[int, Evaluation]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: EvaluationPlan, sweep: SweepPlan, judge: Judge | None = None) -> Sweep:
        """As `Evaluation.prepare` for each value."""
        clients = {value: replace(llm, settings=sweep.settings(llm.settings, value)) for value in sweep.values}
        return cls(sweep.setting, {value: Evaluation.prepare(client, plan, judge) for value, client in clients.items()})

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price of all values; a prompt that several share counts once."""
        return cost_of([*self.evaluations.values()])

    def ask(self, budget: Budget) -> SweepReport:
        """Evaluate value by value within one budget."""
        points = [SweepPoint(value, evaluation.ask(budget)) for value, evaluation in self.evaluations.items()]
        return SweepReport(self.setting, tuple(points))
