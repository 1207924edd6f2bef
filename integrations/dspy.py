"""DSPy: a retriever of demonstrations, and an optimiser whose programs take their demonstrations from a workspace.

from icl_curate.integrations.dspy import CurateFewShot

program = CurateFewShot(".icl-curate", method="ranker", k=5).compile(dspy.Predict("question -> answer"))
program(question="…")

A pool is judged for a program by its name, as ``--llm program:module:object``, or for the prompt of one predictor, as
``--template module:object``: `as_program` and `as_template` are found by the type of the object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..engine.base.errors import UsageError
from ..engine.llm.types import Reply
from ..engine.pool.prompts import AnswerForm
from ..engine.pool.records import Demonstration
from ..engine.select.selector import Selector, besides
from . import NOTHING, asked, digest_of


def example(
    demonstration: Demonstration, input_field: str, output_field: str, others: Collection[str] = ()
) -> dspy.Example:
    """A demonstration as a labelled example of a signature with these two fields and the ``others``, of which
    ``options``, ``context`` and ``history`` are filled if it has them."""
    more = {name: value for name, value in besides(demonstration).items() if name in others}
    if "history" in more:
        turns = ((turn.role, turn.content) for turn in demonstration.history or ())
        more["history"] = _history(turns, input_field, output_field)
    fields = {input_field: demonstration.input, output_field: demonstration.output, **more}
    return dspy.Example(**fields).with_inputs(input_field, *more)


def _history(turns: Iterable[tuple[str, str]], input_field: str, output_field: str) -> dspy.History:
    """Earlier turns, of a role and a text each, as DSPy has them: a question with its answer each."""
    said = [turn for turn in turns if turn[0] != "system"]
    return dspy.History(
        messages=[
            {input_field: question, output_field: answer}
            for (asks, question), (answers, answer) in pairwise(said)
            if (asks, answers) == ("user", "assistant")
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


class _Own:
    """A DSPy program that is given a query and shots: its first input is the question, its last output the answer,
    unless ``input_field`` and ``output_field`` say otherwise. Other inputs are fields of the query."""

    def __init__(self, module: dspy.Module, input_field: str | None, output_field: str | None) -> None:
        if not isinstance(module, dspy.Module) or not module.predictors():
            raise UsageError(f"{type(module).__name__} is no DSPy program with a predictor", "name one: module:object")
        self.module = module
        inputs = module.predictors()[0].signature.input_fields
        self.input_field = input_field or next(iter(inputs))
        self.output_field = output_field or next(reversed(module.predictors()[-1].signature.output_fields))
        self.others = tuple(name for name in inputs if name != self.input_field)
        self.icl_reads = tuple(name for name in self.others if name not in NOTHING)
        lm = dspy.settings.lm.dump_state() if dspy.settings.lm else None
        self.icl_state = digest_of(
            json.dumps([module.dump_state(), lm], sort_keys=True, default=lambda o: type(o).__name__)
        )

    def inputs(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of the program in a query or shot."""
        values = {self.input_field: row["input"], **{name: row[name] for name in self.others if name in row}}
        if "history" in values:
            turns = ((turn["role"], turn["content"]) for turn in row["history"])
            values["history"] = _history(turns, self.input_field, self.output_field)
        return values

    def demos(self, shots: Sequence[Mapping[str, Any]], predictor: dspy.Predict) -> list[dspy.Example]:
        """The shots as examples for a predictor; outputs besides the answer are those fields of a shot."""
        outputs = predictor.signature.output_fields
        return [
            dspy.Example(
                **self.inputs(shot),
                **{name: shot[name] for name in outputs if name in shot and name != self.output_field},
                **{self.output_field: shot["output"]},
            ).with_inputs(self.input_field, *self.others)
            for shot in shots
        ]


@dataclass(frozen=True, slots=True)
class _Parsed(AnswerForm):
    """The form in which an adapter of DSPy wants an answer, read as it does."""

    parse: Callable[[str], str] = field(default=str, compare=False)

    def read(self, reply: str) -> str:
        """The answer; empty where DSPy would raise an error, or ask a second time."""
        return self.parse(reply)


class _Prompt(_Own):
    """See `as_template`."""

    def __init__(self, module: dspy.Module, input_field: str | None, output_field: str | None) -> None:
        super().__init__(module, input_field, output_field)
        if len(module.predictors()) != 1:
            raise UsageError(f"{type(module).__name__} has several predictors", "--llm program:module:object")
        [self.predictor] = module.predictors()
        self.adapter = dspy.settings.adapter or dspy.ChatAdapter()
        # options are scored only in the form of ChatAdapter with one output: nothing stands between it and the prompt
        self.icl_reasons = len(self.predictor.signature.output_fields) > 1 or type(self.adapter) is not dspy.ChatAdapter
        self.icl_answer = _Parsed(
            f"[[ ## {self.output_field} ## ]]\n", "\n\n[[ ## completed ## ]]\n", parse=self._parse
        )

    def __call__(self, query: Mapping[str, Any], shots: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        demos = self.demos(shots, self.predictor)
        return list(self.adapter.format(self.predictor.signature, demos, self.inputs(query)))

    def _parse(self, reply: str) -> str:
        try:
            return _text(self.adapter.parse(self.predictor.signature, reply)[self.output_field])
        except Exception:  # an adapter of anybody's: DSPy takes any error for a reply that cannot be read
            return ""


class _Program(_Own):
    """See `as_program`."""

    def __call__(self, query: Mapping[str, Any], shots: Sequence[Mapping[str, Any]]) -> Reply:
        called = self.module.deepcopy()  # with a history of its own, and runs at the same time have their own shots
        for predictor in called.predictors():
            signature = predictor.signature
            if self.input_field in signature.input_fields and self.output_field in signature.output_fields:
                predictor.demos = self.demos(shots, predictor)
        with dspy.context(disable_history=False):
            answer = getattr(called(**self.inputs(query)), self.output_field)
        calls = [call for call in called.history if not getattr(call["response"], "cache_hit", False)]
        costs = [call["cost"] for call in calls]
        return Reply(
            _text(answer),
            tokens_in=sum(call["usage"].get("prompt_tokens") or 0 for call in calls),
            tokens_out=sum(call["usage"].get("completion_tokens") or 0 for call in calls),
            cost=None if None in costs else float(sum(costs)),
            calls=len(calls),
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_template(
    module: dspy.Module, *, input_field: str | None = None, output_field: str | None = None
) -> Callable[..., list[dict[str, Any]]]:
    """The prompt of a program with one predictor, such as `dspy.Predict` or `dspy.ChainOfThought`, as a function for
    ``--template``: the messages that its adapter writes, the answer that it reads. Where the adapter cannot read a
    reply, the answer is unusable: DSPy's second call with JSON is not made. Raises `UsageError` for anything else."""
    return _Prompt(module, input_field, output_field)


def as_program(
    module: dspy.Module, *, input_field: str | None = None, output_field: str | None = None
) -> Callable[..., Reply]:
    """A program of any number of predictors as one for ``--llm program:``. A copy of it runs each query, with the shots
    as demonstrations of the predictors that have both fields; its calls, tokens and costs are counted, except those
    that DSPy's own cache answers. Raises `UsageError` for anything else."""
    return _Program(module, input_field, output_field)
