"""Training with several seeds: `evaluate --seeds` then uses the policy of each."""

from __future__ import annotations

from functools import reduce

from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, Usage, together
from ..llm.judge import Judge
from .results import RankerSeeds, SeedFigures
from .train import RankerPlan, RankerTraining


class SeededTraining:
    """One prepared training run for each of ``seeds`` seeds from the configured one on; raises as `RankerTraining`.

    A seed draws the batches (and a random start); the answers to prompts that several seeds meet are paid once.
    """

    def __init__(self, llm: LLMClient, plan: RankerPlan, seeds: int, judge: Judge | None = None) -> None:
        first = llm.settings.seed
        self.parts = [RankerTraining(llm, plan, seed, judge) for seed in range(first, first + seeds)]

    def cost(self) -> Plan:
        """An upper bound: as if no two seeds met the same prompt."""
        return reduce(together, (part.cost() for part in self.parts))

    def run(self, budget: Budget) -> RankerSeeds:
        """Train each seed; run and metrics of the result are those of the first."""
        done = [part.run(budget) for part in self.parts]
        figures = tuple(
            SeedFigures(part.seed, each.run, told.best, told.collapsed, told.untrained, told.kept_pass)
            for part, each in zip(self.parts, done, strict=True)
            for told in [each.metrics]
        )
        usage = sum((each.usage for each in done), Usage())
        return RankerSeeds(done[0].run, done[0].llm, usage, done[0].metrics, figures)
