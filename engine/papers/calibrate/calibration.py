"""A calibration run: its cost, the rounds within a budget, and what is stored and returned.

All queries take a round together, so that their prompts are asked concurrently. A run that was stopped continues when
it is started again: prompts depend only on earlier answers, and answers come from the call cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ...base.errors import LLMError, UsageError, counted
from ...base.packages import VERSION
from ...base.progress import Event, Monitor
from ...evaluate.figures import hint
from ...llm.asking import prompt_budget
from ...llm.budget import Budget
from ...llm.cache import call_key, canonical
from ...llm.client import LLMClient
from ...llm.cost import Plan, together, unwritten, usage_of
from ...llm.judge import Grader
from ...llm.marks import Tally, mark
from ...llm.probing import UNSEEN
from ...llm.spec import probe_command
from ...llm.types import Answer, Request, Result
from ...pool.answers import token_f1
from ...pool.records import Query, Task, history_text
from ...retrieval.view import PoolView
from ...select.selector import Selector
from ...store import runs
from ...store.demonstrations import field_values, no_queries, task_of
from ...store.settings import Settings
from ...store.workspace import Workspace
from . import stored
from .documents import cases_for, encoder_scores, fitted
from .prompts import OVERS, Case, Frame, alone_prompt, first_prompt
from .reports import groups_of, report_of
from .results import CalibratedQuery, QueryCalibration, ScoredDocument, ScoredRound, SetCalibration, SteppedQuery
from .round_runner import CalibrationPlan, CalibrationState, RoundRunner
from .rounds import ALL, ARMS, Grades, QueryRounds, Round, arms_named, verdict_key
from .scores import AUTO, ESTIMATORS, estimator_named
from .tuning import other_length
from .variants import REASONING_TOKENS, attention_figures, check_attention

TASK = "calibrate"
SCORE_TOKENS = 16
"""Tokens reserved for what a score or an earlier answer adds to a prompt besides its text."""


UNMARKED = (
    "rounds have the layout of the paper with its instruction; a template shows scores as {{ shot.mark }} and "
    "{{ query.earlier }}"
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A prepared calibration of the ``cases``: the queries with their documents. ``identity`` is that of the LLM, and
    ``values`` are those of the field that the plan's figures are grouped by."""

    llm: LLMClient
    plan: CalibrationPlan
    identity: str
    values: Sequence[str]
    cases: Sequence[Case]
    runner: RoundRunner
    grader: Grader

    @classmethod
    def prepare(
        cls, llm: LLMClient, queries: Sequence[Query], plan: CalibrationPlan, *, selector: Selector | None = None
    ) -> Calibration:
        """Find the documents and write the first prompts; in a dry run not even a probe is sent. A long-running process
        passes its own ``selector``. Raises `UsageError` for no queries, unknown arms or estimators, or an arm that
        needs reference answers if there are none, and `LLMError` if the LLM lacks what the estimator needs, before any
        request."""
        workspace, settings = llm.workspace, llm.settings
        if not queries:
            raise no_queries(workspace, f"there are no {plan.split or 'given'} queries to calibrate")
        identity = canonical(llm.backend.identity())
        means = _stored_means(workspace, identity, settings)
        if plan.estimator == AUTO and not plan.split and means:  # a single query is scored like the latest set
            (name, _), _ = max(means.items(), key=lambda item: item[1][2])
            plan = replace(plan, estimator=name)
        task = task_of(workspace)
        grader = Grader.of(llm, task)
        plan = _checked(plan, queries, grader, llm.monitor)
        values = field_values(workspace, queries, plan.by) if plan.by else []
        frame = Frame(task, settings.prompt_template, settings.order)
        capabilities, count = llm.capabilities, llm.backend.count_tokens
        cases = cases_for(workspace, queries, task, settings, plan.over, llm.monitor, selector, count)
        if any(case.over == "documents" for case in cases) and (note := other_length(settings)):
            llm.monitor.report(Event(TASK, note=note))
        if any(case.over == "demonstrations" for case in cases) and not frame.template.marks:
            llm.monitor.report(Event(TASK, note=f"{settings.template} shows no scores: {UNMARKED}"))
        room = prompt_budget(settings, capabilities)
        fitting = [fitted(case, frame, count, room, _growth(case, plan, settings)) for case in cases]
        if cut := sum(was_cut for _, was_cut in fitting):
            note = f"{counted(cut, 'query', 'was', 'were')} truncated to fit into {room:,} tokens"
            llm.monitor.report(Event(TASK, note=note))
        cases = [case for case, _ in fitting]
        relevance: Sequence[tuple[float | None, ...]] = ()
        if any(ARMS[arm].documents == "relevance" for arm in plan.arms):
            relevance = encoder_scores(PoolView(workspace, settings, llm.monitor), cases)
        stored_means = {key: mean for key, (mean, *_) in means.items()}
        grades = Grades(task, grader.metric, {} if grader.judge else None)
        runner = RoundRunner(cases, frame, grades, plan, settings, capabilities, relevance, stored_means)
        if plan.attention:
            check_attention(llm)
        if capabilities is not UNSEEN:  # as it is in a dry run before any probe
            _check_capable(runner, llm.name)
        return cls(llm, plan, identity, values, cases, runner, grader)

    @property
    def task(self) -> Task:
        """What the pool's answers are."""
        return self.runner.frame.task

    @property
    def grades(self) -> Grades:
        """How good answers are."""
        return self.runner.grades

    def cost(self) -> Plan:
        """What is left to ask, exact as far as answers are cached; each later round counts as one prompt more. With a
        judge also of its verdicts: an upper bound."""
        llm, asked, frame = self.llm, list[Request](), self.runner.frame

        def peek(requests: Sequence[Request]) -> Sequence[Result | None]:
            asked.extend(requests)
            return llm.from_cache(requests)

        state = self.runner.run(peek)
        plan, price, settings = llm.plan(asked), llm.price, llm.settings
        if self.grader.judge:
            plan = together(plan, self.grader.judge.plan(_to_judge(state)))
        requests = 1 + (self.plan.samples if estimator_named(self.plan.estimator).needs == "samples" else 0)
        more = sum(state.unknown) * requests
        if not more:
            return plan
        low_in = high_in = 0
        for case, unknown in zip(state.cases, state.unknown, strict=True):
            tokens = llm.backend.count_tokens(first_prompt(case, frame)) if unknown else 0
            low_in += unknown * requests * tokens
            high_in += unknown * requests * (tokens + _growth(case, self.plan, settings))
        if self.plan.settle is not None or self.plan.above is not None or self.plan.until_correct:
            low = low_in = 0  # any round may be the last
        else:
            low = more
        high_out = more * settings.answer_tokens
        cost = (price.cost(low_in, low), price.cost(high_in, high_out)) if price else None
        return together(plan, unwritten(more, (low_in, high_in), (low, high_out), cost))

    def cached_rounds(self) -> SteppedQuery:
        """The first query as far as answers are cached; nothing is asked or stored."""
        return self._stepped_query(self.runner.run(self.llm.from_cache))

    def cost_of_step(self) -> Plan:
        """What `step` would ask; nothing if all rounds are finished."""
        wanted: list[Request] = []

        def peek(requests: Sequence[Request]) -> Sequence[Result | None]:
            cached = self.llm.from_cache(requests)
            if not wanted and None in cached:
                wanted.extend(requests)
            return cached

        self.runner.run(peek)
        return self.llm.plan(wanted)

    def step(self, budget: Budget) -> SteppedQuery:
        """Ask only the next round of the first query; the answers are stored in the call cache only. Returns what
        `cached_rounds` returns from then on."""
        done = False

        def ask(requests: Sequence[Request]) -> Sequence[Result | None]:
            nonlocal done
            cached = self.llm.from_cache(requests)
            if done or None not in cached:
                return cached
            done = True
            return self.llm.ask(requests, budget)

        return self._stepped_query(self.runner.run(ask))

    def _stepped_query(self, state: CalibrationState) -> SteppedQuery:
        """The first query, with the messages of each round's prompt."""
        query, rounds = self._query_result(0, state), state.all_rounds[self.plan.arms[0]][0].rounds
        values = {field.name: getattr(query, field.name) for field in fields(query)}
        template, frame = self.llm.settings.template, self.runner.frame
        own = self.cases[0].over == "demonstrations" and frame.template.marks
        written_by = template if own else f"the paper's layout, with {template}"
        return SteppedQuery(**values, prompts=tuple(round_.prompt.messages for round_ in rounds), written_by=written_by)

    def ask(self, budget: Budget) -> QueryCalibration | SetCalibration:
        """Run all rounds of all queries and store everything round by round. A single query outside a set is returned
        with its documents and rounds, a set with its summary figures."""
        llm, settings = self.llm, self.llm.settings
        described = (
            asdict(self.plan)
            | {
                "arms": list(self.plan.arms),
                "queries": len(self.cases),
                "k": settings.k,
                "method": settings.method,
                "seed": settings.seed,
                "template": _template(settings),
                "document_tokens": settings.document_tokens,
                "version": VERSION,
            }
            | self.grader.told
        )
        identity = llm.backend.identity()
        asked: dict[bytes, tuple[Query, Result]] = {}

        def ask(requests: Sequence[Request]) -> Sequence[Result | None]:
            results = llm.ask(requests, budget)
            for request, result in zip(requests, results, strict=True):
                asked.setdefault(call_key(identity, request), (request.prompt.query, result))
            return results

        grader = replace(self.grader)

        def after(state: CalibrationState, step: int) -> None:
            self._judge(state, grader, budget)
            self._store(record.run, state, step)

        with llm.recorded(stored.KIND, described) as record:
            state = self.runner.run(ask, after)
            calibrated = self._result(record.run, state, [*asked.values()], grader)
            record.summary = calibrated.summary() if isinstance(calibrated, SetCalibration) else calibrated.as_json()
        return calibrated

    def _judge(self, state: CalibrationState, grader: Grader, budget: Budget) -> None:
        """Ask the judge, if there is one, about the answers that it has not seen."""
        verdicts = self.grades.verdicts
        if grader.judge is None or verdicts is None:
            return
        new = {
            verdict_key(query, answer): (query, answer)
            for query, answer in _to_judge(state)
            if answer is not None and verdict_key(query, answer) not in verdicts
        }
        replies = grader.judge.ask([*new.values()], budget)
        marks = [
            mark(Answer(answer), grader.judge.verdict(reply), grader.metric, reply)
            for (_, answer), reply in zip(new.values(), replies, strict=True)
        ]
        verdicts |= dict(zip(new, marks, strict=True))
        grader.usage += usage_of(replies)
        grader.unjudged += sum(one.state == "unjudged" for one in marks)

    # storage and results

    def _store(self, run: int, state: CalibrationState, step: int) -> None:
        self.llm.monitor.report(Event(TASK, step, self.plan.rounds))
        if step == 0:
            frame = self.runner.frame
            rows = [
                {
                    "run": run,
                    "place": place,
                    "document": i + 1,
                    "prompt": history_text(alone_prompt(case, frame, i).messages) if state.alone[place] else "[]",
                    **asdict(document),
                }
                for place, case in enumerate(state.cases)
                for i, document in enumerate(_documents(state, place, state.scores[place]))
            ]
            stored.append(self.llm.workspace, "calibration_documents", rows)
            self._store_means(run, state)
        done_rounds = [
            {
                "run": run,
                "arm": arm,
                "place": place,
                "prompt": history_text(round_.prompt.messages),
                **asdict(self._scored_round(query_rounds, round_)),
            }
            for arm, all_rounds in state.all_rounds.items()
            for place, query_rounds in enumerate(all_rounds)
            for round_ in query_rounds.rounds[-1:]
            if round_.round == step
        ]
        stored.append(self.llm.workspace, "calibration_rounds", done_rounds)

    def _store_means(self, run: int, state: CalibrationState) -> None:
        if not self.plan.split:
            return
        answered: list[str] = [
            case.over
            for case, query_rounds in zip(state.cases, state.all_rounds[self.plan.arms[0]], strict=True)
            if not query_rounds.failure
        ]
        for over, mean in state.means.items():
            stored.save_mean(
                self.llm.workspace, self.identity, state.estimator_name, over, mean, answered.count(over), run
            )

    def _result(
        self, run: int, state: CalibrationState, asked: Sequence[tuple[Query, Result]], grader: Grader
    ) -> QueryCalibration | SetCalibration:
        rows = []
        for arm, all_rounds in state.all_rounds.items():
            for place, query_rounds in enumerate(all_rounds):
                final = query_rounds.final(self.grades)
                query = query_rounds.case.query
                rows.append(
                    {"run": run, "arm": arm, "place": place, "query": query.row, "input": query.input,
                     "over": query_rounds.case.over, "final": final.round if final else None,
                     "failure": query_rounds.failure}
                )  # fmt: skip
        stored.append(self.llm.workspace, "calibrations", rows)
        done_queries = tuple(self._query_result(i, state) for i in range(len(self.cases)))
        failures = [
            query_rounds.failure for query_rounds in state.all_rounds[self.plan.arms[0]] if query_rounds.failure
        ]
        shared: dict[str, Any] = {
            "run": run,
            "llm": self.llm.name,
            "estimator": state.estimator_name,
            "task": self.task.kind,
            "split": self.plan.split,
            "usage": usage_of([result for _, result in asked]),
            "means": dict(state.means),
        }
        if not self.plan.split and len(self.cases) == 1:
            if failures:
                raise LLMError(f"{self.llm.name} gave no answer: {failures[0]}", probe_command(self.llm.name))
            [only] = done_queries
            return QueryCalibration(
                **shared, query=only, mean_known=(state.estimator_name, only.over) in self.runner.stored_means
            )
        size = (self.grades, self.plan.rounds, self.llm.settings.seed)
        figures = replace(report_of(state.all_rounds, *size, state.costs), judge=grader.judging)
        if first := figures.arms.get(self.plan.arms[0]):
            f1 = first.f1 if self.task.kind == "open" else None
            replies = [(query, result) for query, result in asked if query.answers]
            most = self.llm.settings.answer_tokens
            tried = hint(first.outcomes or Tally(), first.accuracy, f1, replies, self.task, grader, most)
            figures = replace(figures, hint=tried or None)
        if self.values:
            figures = replace(figures, by=groups_of(self.plan.by, self.values, state.all_rounds, *size))
        if self.plan.attention:
            figures = replace(figures, attention=attention_figures(self.llm, state.all_rounds[self.plan.arms[0]]))
        return SetCalibration(**shared, figures=figures, queries=done_queries, graded_by=self.grader.by)

    def _query_result(self, i: int, state: CalibrationState) -> CalibratedQuery:
        """The results of one query under the first arm."""
        case, query_rounds = state.cases[i], state.all_rounds[self.plan.arms[0]][i]
        final = query_rounds.final(self.grades)
        return CalibratedQuery(
            id=case.query.id,
            query=case.query.input,
            answers=tuple(case.query.answers),
            over=case.over,
            documents=_documents(state, i, query_rounds.scores or state.scores[i]),
            rounds=tuple(self._scored_round(query_rounds, round_) for round_ in query_rounds.rounds),
            final=final.answer if final else None,
            final_round=final.round if final else None,
            failure=query_rounds.failure,
        )

    def _scored_round(self, query_rounds: QueryRounds, round_: Round) -> ScoredRound:
        query = query_rounds.case.query
        graded = self.grades.mark(query, round_.answer) if query.answers else None
        return ScoredRound(
            round=round_.round,
            answer=round_.answer,
            uncertainty=round_.uncertainty,
            score=round_.score,
            correct=graded.right if graded else None,
            f1=token_f1(round_.answer, query.answers) if query.answers else None,
            value=graded.value if graded and graded.right is not None else None,
        )


def _documents(state: CalibrationState, place: int, scores: Sequence[float | None]) -> tuple[ScoredDocument, ...]:
    """The documents of a case with the answers from them and their ``scores``, empty if they have none."""
    documents = state.cases[place].documents
    unknown = [None] * len(documents)
    return tuple(
        ScoredDocument(
            id=document.id,
            score=score,
            text=document.text,
            answer=answer.text if answer and answer.uncertainty is not None else None,
            uncertainty=answer.uncertainty if answer else None,
            relevant=document.relevant,
            row=document.demonstration.row if document.demonstration else None,
        )
        for document, answer, score in zip(documents, state.alone[place] or unknown, scores or unknown, strict=True)
    )


def _to_judge(state: CalibrationState) -> list[tuple[Query, str | None]]:
    """The answers of all rounds so far to queries with references, and None for each that is not known yet."""
    every = [query_rounds for arm in state.all_rounds.values() for query_rounds in arm]
    answers: list[tuple[Query, str | None]] = [(each.case.query, r.answer) for each in every for r in each.rounds]
    answers += [(each.case.query, None) for each in every if not (each.rounds or each.failure)]
    answers += [(case.query, None) for case, n in zip(state.cases, state.unknown, strict=True) for _ in range(n)]
    return [(query, answer) for query, answer in answers if query.answers]


def _checked(plan: CalibrationPlan, queries: Sequence[Query], grader: Grader, monitor: Monitor) -> CalibrationPlan:
    """The plan with the arms that these queries allow. Raises `UsageError` for options that they do not allow: of arms
    named one by one all must be possible."""
    estimator_named(plan.estimator)
    if not all(query.input.strip() for query in queries):
        raise UsageError("the query is empty", 'icl-curate calibrate query "a question"')
    lacking = {}
    if not all(query.answers for query in queries):
        lacking["oracle"] = "reference answers"
    if plan.over == "steps":
        lacking["relevance"] = "documents or demonstrations"
    arms = arms_named(plan.arms)
    for arm in (arm for arm in arms if arm in lacking):
        if ALL not in plan.arms:
            raise UsageError(f"the arm '{arm}' needs {lacking[arm]}", "leave out the arm")
        monitor.report(Event(TASK, note=f"the arm '{arm}' was left out: it needs {lacking[arm]}"))
    if plan.until_correct and not all(query.answers for query in queries):
        raise UsageError("--until-correct needs reference answers", "--split validation, or leave it out")
    if plan.until_correct and grader.judge:
        raise UsageError("--until-correct does not wait for a judge's verdicts", "leave it out, or another --metric")
    return replace(plan, arms=tuple(arm for arm in arms if arm not in lacking))


def _stored_means(
    workspace: Workspace, identity: str, settings: Settings
) -> dict[tuple[str, str], tuple[float, int, int]]:
    """The means of sets that had prompts like these, by estimator and kind of case."""
    with workspace.read():  # opened once for all
        means = {
            (name, over): mean
            for name in ESTIMATORS
            for over in OVERS
            if (mean := stored.mean_of(workspace, identity, name, over))
        }
        return {key: mean for key, mean in means.items() if _same_prompts(workspace, settings, mean[2], key[1])}


def _same_prompts(workspace: Workspace, now: Settings, run: int, over: str) -> bool:
    """Whether a stored mean is of prompts like these: of the same template, and of as many demonstrations by the same
    method. Runs from before this was recorded count as alike."""
    then = runs.settings(workspace, run)
    alike: dict[str, object] = {"template": _template(now)}
    if over == "demonstrations":
        alike |= {"k": now.k, "method": now.method}
    if over == "documents" and then.get("document_tokens") != now.document_tokens:
        return False  # runs from before this was recorded had whole documents
    return all(then.get(name, value) == value for name, value in alike.items())


def _growth(case: Case, plan: CalibrationPlan, settings: Settings) -> int:
    """Maximum tokens by which the last round's prompt can be longer than the first."""
    steps = max(settings.answer_tokens, REASONING_TOKENS) if case.over == "steps" else 0
    return steps + SCORE_TOKENS * (4 + len(case.documents)) + plan.rounds * (settings.answer_tokens + SCORE_TOKENS)


def _check_capable(runner: RoundRunner, llm: str) -> None:
    """Raise `LLMError` if the LLM lacks what the estimator needs."""
    needs, capabilities = estimator_named(runner.plan.estimator).needs, runner.capabilities
    given = {"logprobs": capabilities.logprobs, "entropies": capabilities.entropies, "samples": True}
    sampled = any(ARMS[arm].samples for arm in runner.plan.arms)
    scored = all(runner.request(first_prompt(case, runner.frame)).score for case in runner.cases)
    if given[needs] or (scored and not sampled):
        return
    name = {"logprobs": "log-probabilities", "entropies": "entropies"}[needs]
    raise LLMError(
        f"calibration by '{runner.plan.estimator}' needs {name} of answers, which {llm} does not provide",
        "icl-curate calibrate --uncertainty self-consistency (samples each prompt), or --llm hf:PATH; to probe it "
        f"again: {probe_command(llm)}",
    )


def _template(settings: Settings) -> list[str]:
    """What shapes the prompts of a run; a prefix of answers only if there is one, as in runs from before it existed."""
    prefix = [settings.answer_prefix] if settings.answer_prefix else []
    own = [settings.prompt_template.digest] if settings.template != "auto" else []
    return [settings.prompt_format, settings.instruction, settings.order, *prefix, *own]
