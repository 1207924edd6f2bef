"""DSPy: a retriever of demonstrations, and an optimiser whose programs take their demonstrations from a workspace.

from icl_curate.integrations.dspy import CurateFewShot

program = CurateFewShot(".icl-curate", method="ranker", k=5).compile(dspy.Predict("question -> answer"))
program(question="…")
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..engine.pool.records import Demonstration
from ..engine.select.selector import Selector, besides
from . import asked


def example(
    demonstration: Demonstration, input_field: str, output_field: str, others: Collection[str] = ()
) -> dspy.Example:
    """A demonstration as a labelled example of a signature with these two fields and the ``others``, of which
    ``options``, ``context`` and ``history`` are filled if it has them."""
    more = {name: value for name, value in besides(demonstration).items() if name in others}
    if "history" in more:
        more["history"] = _history(demonstration, input_field, output_field)
    fields = {input_field: demonstration.input, output_field: demonstration.output, **more}
    return dspy.Example(**fields).with_inputs(input_field, *more)


def _history(demonstration: Demonstration, input_field: str, output_field: str) -> dspy.History:
    """The earlier turns as DSPy has them: a question with its answer each."""
    turns = [turn for turn in demonstration.history or () if turn.role != "system"]
    return dspy.History(
        messages=[
            {input_field: question.content, output_field: answer.content}
            for question, answer in pairwise(turns)
            if (question.role, answer.role) == ("user", "assistant")
        ]
    )


class CurateRetriever(dspy.Module):
    """Calls of it give the demonstrations of a workspace for a query, best first: ``passages`` are their texts,
    ``demonstrations`` the records. ``selection`` is what `Selector` takes."""

    def __init__(self, workspace: Path | str, **selection: Any) -> None:
        super().__init__()
        self.selector = Selector(workspace, **selection)

    def forward(self, query: str) -> dspy.Prediction:
        found = [shot.demonstration for shot in self.selector.select(query)]
        return dspy.Prediction(passages=[f"{d.input}\n{d.output}" for d in found], demonstrations=found)


class CurateFewShot(Teleprompter):
    """An optimiser like DSPy's `KNNFewShot`, with any method of selection: the compiled program takes the
    demonstrations of each call from the workspace. No LLM is called to compile.

    ``input_field`` and ``output_field`` name the fields of the program's signatures; predictors without both keep
    their demonstrations. If not given, they are the first input and the last output of the first predictor.
    ``selection`` is what `Selector` takes.
    """

    def __init__(
        self,
        workspace: Path | str,
        *,
        input_field: str | None = None,
        output_field: str | None = None,
        **selection: Any,
    ) -> None:
        self.selector = Selector(workspace, **selection)
        self.input_field, self.output_field = input_field, output_field

    def compile(self, student: dspy.Module, *, trainset: Any = None, **_: Any) -> dspy.Module:
        """A copy of the program that selects; a ``trainset`` is not used."""
        signature = student.predictors()[0].signature
        asked = self.input_field or next(iter(signature.input_fields))
        answered = self.output_field or next(reversed(signature.output_fields))
        return _Selecting(student.deepcopy(), self.selector, asked, answered)


class _Selecting(dspy.Module):
    """The program with its demonstrations selected call by call."""

    def __init__(self, program: dspy.Module, selector: Selector, asked: str, answered: str) -> None:
        super().__init__()
        self.program, self._selector, self._asked, self._answered = program, selector, asked, answered

    def forward(self, **inputs: Any) -> Any:
        called = self.program.deepcopy()  # calls at the same time have demonstrations of their own
        query = asked(
            str(inputs[self._asked]), {name: value for name, value in inputs.items() if name != "history"}, self._asked
        )
        best_first = [shot.demonstration for shot in self._selector.select(query)]
        shown = best_first if self._selector.settings.order == "best-first" else best_first[::-1]
        for predictor in called.predictors():
            signature = predictor.signature
            if self._asked in signature.input_fields and self._answered in signature.output_fields:
                others = signature.input_fields.keys() - {self._asked}
                predictor.demos = [example(shot, self._asked, self._answered, others) for shot in shown]
        return called(**inputs)
