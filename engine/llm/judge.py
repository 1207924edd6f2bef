"""An LLM as the judge of answers: right or wrong, or how good on a scale, where comparing texts cannot tell.

Its calls are paid, cached and retried like all others. A verdict that it does not give (a failed call, a reply that is
not one of those asked for) is counted, and never taken for a no.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.contract import to_json
from ..base.errors import LLMError, counted
from ..grading.metrics import ACCURACY, JUDGES, Metric
from ..pool.choices import choice_of, option_of
from ..pool.prompts import CUE, Prompt, cued, lettered
from ..pool.records import Message, Query, Task
from .asking import FORMLESS, request_for
from .budget import Budget
from .client import LLMClient
from .cost import Judging, Plan, Usage, together, usage_of
from .graded import TEMPLATE, digest_of, graded_by, metric_set, template_set
from .marks import OTHER_JUDGE, GradedBy, Mark, commonest, mark, marked
from .probing import UNSEEN, require
from .types import Answer, Request, Result

_LINES = re.compile(r"\S.*")
_OUT_OF = re.compile(r"[^\S\n]*\(?(?:/|\bout of\b)\s*4\b\)?")
_LEADS = (
    re.compile("^"),
    re.compile(r"^\W*(?:(?:my|the|final|overall)\s+)*(?:score|rating|grade|verdict)\b[^\d.-]*(?=\d)", re.IGNORECASE),
    re.compile(r".*(?::|\b(?:give|get|rate|score)s?\b)[^\d.-]*(?=\d)", re.IGNORECASE),
)
"""What comes before a verdict, the surest first: nothing, its name, words that may also speak of the answer."""
_REASON = re.compile(r"(?:[,;.:]\s|\s[-–—(])\s*(?![\s\d]).*")
"""What follows a verdict: ``4 - perfect`` is 4, and ``3 - 4`` none."""


@dataclass(frozen=True)
class Judge:
    """``llm`` judges by a ``template`` with the fields `FIELDS`, at temperature 0, with one of the verdicts of
    ``metric``. Raises `LLMError` if it is known not to follow instructions."""

    llm: LLMClient
    template: str = TEMPLATE
    metric: str = "judge"

    def __post_init__(self) -> None:
        if (able := self.llm.capabilities) is not UNSEEN:
            require(able, self.llm.name, instructs=True, purpose=f"--metric {self.metric}")

    def request(self, query: Query, answer: str) -> Request:
        """How good ``answer`` is: one of the verdicts, scored if the LLM can."""
        fields = {
            "question": query.input,
            "context": query.context,
            "options": lettered(query.options),
            "accepted": "; ".join(query.answers),
            # lines are the form of code, tables and lists; a text of one is judged once, whatever its blanks
            "answer": answer if "\n" in answer.strip() else " ".join(answer.split()),
        }
        text = self.template.format_map(_fenced(fields))
        asked = Message("user", text if text.endswith(CUE) else cued(text))
        prompt = Prompt((asked,), query, (), tuple(JUDGES[self.metric]), one_line=True, read="text")
        settings = replace(self.llm.settings, answers="auto", temperature=None, top_p=None, **FORMLESS)
        return request_for(prompt, settings, self.llm.capabilities)

    def plan(self, answers: Sequence[tuple[Query, str | None]], *, anew: bool = False) -> Plan:
        """What judging would ask, ``anew`` as in `LLMClient.plan`. An answer that is not known yet counts as long as
        the reference, and as unlike all others: an upper bound, because equal answers to a query are judged once."""
        foreseen = [
            (query, f"{' '.join(query.answers[:1])} {i}" if answer is None else answer)
            for i, (query, answer) in enumerate(answers)
        ]
        return self.llm.plan([self.request(*each) for each in foreseen], anew=anew)

    def ask(self, answers: Sequence[tuple[Query, str]], budget: Budget) -> list[Result]:
        """The replies, one for each answer."""
        return self.llm.ask([self.request(*each) for each in answers], budget)

    def verdict(self, reply: Result) -> float | None:
        """What the answer is worth, None if the judge did not say: in its last line, or in its first if it explains
        itself after. What it quotes in between is the answer's own."""
        worth, verdicts = JUDGES[self.metric], tuple(JUDGES[self.metric])
        found = _LINES.findall(_OUT_OF.sub("", reply.text)) if isinstance(reply, Answer) else []
        lines = (*found[-1:], *found[:1])
        said = [choice_of(line, verdicts) for line in lines if self.metric == "judge"]
        # a number that is only mentioned is no verdict: "it misses 1 detail"
        said += [option_of(_REASON.sub("", lead.sub("", line)), verdicts) for lead in _LEADS for line in lines]
        return next((worth[verdicts[choice]] for choice in said if choice is not None), None)


def _fenced(fields: Mapping[str, str]) -> dict[str, str]:
    """Each text between tags that none of them contains: an answer cannot end its own and judge itself. The tags are
    the same for the same texts, so that a verdict is found again."""
    whole = mark = "\0".join(fields.values())
    while mark in whole:
        mark = digest_of(mark, 4)
    return {name: f'<{name} id="{mark}">{text}</{name} id="{mark}">' if text else "" for name, text in fields.items()}


def _silent(llm: str, replies: Sequence[Result]) -> LLMError:
    """The error for a judge that judged nothing."""
    said = [reply.text if isinstance(reply, Answer) else f"{reply.kind}: {reply.message}" for reply in replies]
    return LLMError(
        f"the judge {llm} gave no verdict on {counted(len(replies), 'answer')}; most often: {commonest(said)}",
        OTHER_JUDGE,
    )


@dataclass(slots=True)
class Grader:
    """Says how good answers are: by the judge if there is one, else by the metric. It counts the judge's calls."""

    task: Task
    by: GradedBy
    metric: Metric = ACCURACY
    judge: Judge | None = None
    usage: Usage = Usage()
    unjudged: int = 0

    @classmethod
    def of(cls, llm: LLMClient, task: Task) -> Grader:
        """The one that the settings name. Raises as `graded_by` and `Judge` do."""
        settings = llm.settings
        by, metric = graded_by(llm.workspace, settings, task), metric_set(llm.workspace, settings, task)
        judge = Judge(llm.judge or llm, template_set(settings), by.metric) if by.judge else None
        return cls(task, by, metric, judge)

    @property
    def told(self) -> dict[str, Any]:
        """What a stored run says of it (`runs.GRADING`)."""
        return {"graded_by": to_json(self.by)}

    def plans(self, llm: LLMClient, requests: Sequence[Request], *, anew: bool = False) -> tuple[Plan, Plan | None]:
        """What is left to ask of these requests, and, with a judge, of judging their answers: an upper bound. ``anew``:
        as if nothing were known of them."""
        plan = llm.plan(requests, anew=anew)
        if self.judge is None:
            return plan, None
        known = [None] * len(requests) if anew else llm.from_cache(requests)
        answers = [
            (request.prompt.query, answer.text if answer else None)
            for request, answer in zip(requests, known, strict=True)
        ]
        return plan, self.judge.plan(answers, anew=anew)

    def plan(self, llm: LLMClient, requests: Sequence[Request]) -> Plan:
        """Both of `plans` together."""
        plan, judging = self.plans(llm, requests)
        return plan if judging is None else together(plan, judging)

    def marks(self, queries: Sequence[Query], results: Sequence[Result], budget: Budget) -> list[Mark]:
        """What became of each query. Raises `LLMError` if there are answers, and the judge gave a verdict on none."""
        if self.judge is None:
            return marked(queries, results, self.task, self.metric)
        asked = zip(queries, results, strict=True)
        answered = [(query, result.text) for query, result in asked if isinstance(result, Answer)]
        replies = self.judge.ask(answered, budget)
        verdicts = [self.judge.verdict(reply) for reply in replies]
        if replies and all(said is None for said in verdicts):
            raise _silent(self.judge.llm.name, replies)
        left = zip(verdicts, replies, strict=True)
        said = [next(left) if isinstance(result, Answer) else (None, None) for result in results]
        marks = [mark(result, value, self.metric, by) for result, (value, by) in zip(results, said, strict=True)]
        self.usage += usage_of(replies)
        self.unjudged += sum(mark.state == "unjudged" for mark in marks)
        return marks

    @property
    def judging(self) -> Judging | None:
        """What the judge was asked so far; None without one."""
        if self.judge is None:
            return None
        return Judging(self.judge.llm.name, self.judge.template, self.usage, self.unjudged)
