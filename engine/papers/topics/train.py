"""Training of a pool's topics: the topics, their demonstrations, and what the LLM knows of them (paper 004).

Validation queries are used, inputs and answers, and so is whether the LLM answers them zero-shot: otherwise a topic
missing from the pool would have no name, and no gap would be found. Test queries are never used.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ...base import memory
from ...base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread, top_k
from ...base.errors import UsageError, counted
from ...base.packages import VERSION, require
from ...base.progress import SILENT, Event, Monitor
from ...llm.asking import prompt_budget, prompt_for, request_for
from ...llm.budget import Budget
from ...llm.client import LLMClient
from ...llm.cost import Plan, together, usage_of
from ...llm.judge import Grader
from ...llm.marks import Mark, tally, values_of
from ...llm.types import Answer, Capabilities, Request, Result
from ...pool.records import Demonstration, Query, Task
from ...pool.words import fold
from ...retrieval import bm25
from ...retrieval.bm25 import BM25Index
from ...retrieval.view import PoolView
from ...shards.over import SHARDS
from ...store import trials as row_answers
from ...store.demonstrations import fetch, groups, queries, task_of
from ...store.trials import RowAnswers
from . import stored as store
from .match import (
    NAMINGS,
    Links,
    core_request,
    core_topics,
    lexical_candidates,
    read_core,
    semantic_candidates,
    topics_in,
)
from .mining import label_topics, mine, read_list
from .model_file import TopicModel, save, strongest
from .predictor import Predictor, fit, quality, ranking_quality, started, topical_knowledge
from .results import FitFigures, LambdaChoice, LambdaTrial, TopicMetrics, TopicRun
from .selection import chosen_by, loaded

TARGETS_TASK = "targets"
NEIGHBOURS = 100
"""Nearest demonstrations of a text with which its topics are compared: the paper's D_d."""

_CHUNK = 256


def log_distinctiveness(own: Float64s, others: Float64s) -> Float64s:
    """log DST (m,) from BM25 of the text ``own`` (m,) and of its neighbours ``others`` (m, 100) for a topic; eq. 2.
    In log space: exp(BM25) overflows float64 at a score of 710."""
    top = np.maximum(others.max(axis=1, initial=0.0), 0.0)
    total = np.exp(-top) + np.exp(others - top[:, None]).sum(axis=1)
    return np.asarray(own - (top + np.log(total)), np.float64)  # eq. 2: log(exp(own) / (1 + Σ exp(others)))


def soft_targets(log_dst: Float64s, starts: Int64s) -> Float32s:
    """Each distinctiveness divided by the largest of its text (eq. 3); text i has ``log_dst[starts[i]:starts[i +
    1]]``."""
    if not len(log_dst):
        return np.empty(0, np.float32)
    lengths = np.diff(starts)
    best = np.maximum.reduceat(log_dst, starts[:-1][lengths > 0])
    targets: Float32s = np.exp(log_dst - np.repeat(best, lengths[lengths > 0])).astype(np.float32)
    return targets  # eq. 3: DST / max DST


def neighbours(
    vectors: Float32s, pool: Float32s, own: Int64s, count: int = NEIGHBOURS, monitor: Monitor = SILENT
) -> Int64s:
    """Positions in ``pool`` (n, d) of the ``count`` vectors nearest to each of ``vectors`` (m, d), (m, count).

    ``own`` (m,) is a text's own position in the pool, which is left out, or -1.
    """
    count = min(count, len(pool) - (1 if (own >= 0).any() else 0))
    nearest = np.empty((len(vectors), max(count, 0)), np.int64)
    with one_blas_thread():
        for start in range(0, len(vectors), _CHUNK):
            monitor.check()
            monitor.report(Event(TARGETS_TASK, start, len(vectors)))
            scores = np.asarray(vectors[start : start + _CHUNK]) @ pool.T
            mine = own[start : start + _CHUNK]
            scores[np.flatnonzero(mine >= 0), mine[mine >= 0]] = -np.inf
            for i, row in enumerate(scores, start):
                nearest[i] = top_k(row, count)
    return nearest


def distinctiveness(
    index: BM25Index, names: Sequence[str], core: Links, places: Int64s, near: Int64s, monitor: Monitor = SILENT
) -> Links:
    """The core topics with their soft targets as weights.

    ``index`` has the folded texts; text i of ``core`` is there at ``places[i]``, its neighbours at ``near[i]`` (m,
    100). Works topic by topic: no array of size texts × topics is created.
    """
    owner = core.texts()
    by_topic = np.argsort(core.topics, kind="stable")
    bounds = np.searchsorted(core.topics[by_topic], np.arange(len(names) + 1))
    log_dst = np.zeros(len(owner))
    for topic, name in enumerate(names):
        if topic % 256 == 0:
            monitor.check()
            monitor.report(Event(TARGETS_TASK, topic, len(names)))
        links = by_topic[bounds[topic] : bounds[topic + 1]]
        if len(links):
            scores = index.scores(fold(name))
            texts = owner[links]
            log_dst[links] = log_distinctiveness(scores[places[texts]], scores[near[texts]])
    monitor.report(Event(TARGETS_TASK, len(names), len(names)))
    return Links(core.starts, core.topics, soft_targets(log_dst, core.starts))


TASK = "topics"
MOST_MINED = 250_000
"""Demonstrations from which topics are mined: a million held 6.5 GB."""
MINED_BYTES, ROW_BYTES = 6_000, 350
"""Memory for each of those, and for each row whose topics are predicted, measured on short rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """How topics are trained.

    ``topics_file``: the user's own list instead of mining; ``size``: maximum number of these. ``llm_topics``: the LLM
    picks the core topics, otherwise word overlap does; with a ``core_file`` those of this file count, and overlap does
    for texts that it lacks. ``sample``: maximum demonstrations for training the predictor (and for the LLM to read);
    ``questions``: demonstrations asked zero-shot for topical knowledge. ``soft``: targets by distinctiveness (eq. 2 and
    3), else 1. ``cosine``: λ of the final score, which the paper chooses in [0.1, 1] on validation. ``held_out``: share
    for evaluation only. ``as_printed``: candidates by BM25 even where a word of the topic is missing, and every topic
    that the LLM adds, even for one text alone. ``nouns``: mine no single words but nouns. ``lambdas``: choose λ among
    these, on half of the validation queries, from which nothing else is learnt.
    """

    topics_file: str = ""
    core_file: str = ""
    size: int | None = None
    llm_topics: bool = True
    sample: int = 20_000
    questions: int = 1_000
    soft: bool = True
    cosine: float = 1.0
    held_out: float = 0.1
    epochs: int = 30
    rate: float = 1e-3
    as_printed: bool = False
    nouns: bool = False
    lambdas: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicTexts:
    """What topics are learnt from: the texts of the ``rows`` (n,), whose demonstrations are the ``shots``, then those
    of the validation queries ``asked``. The queries ``apart`` choose λ, and nothing else is learnt from them.

    ``vectors`` (texts, d). ``places``: the texts for training, of which those ``held_out`` (places,) are for evaluation
    only. The ``questions`` are asked zero-shot; their texts are at ``question_places``.
    """

    rows: Int64s
    shots: Sequence[Demonstration]
    asked: Sequence[Query]
    apart: Sequence[Query]
    texts: Sequence[str]
    vectors: Float32s
    places: Int64s
    held_out: Bools
    questions: Sequence[Query]
    question_places: Int64s

    def example(self, place: int) -> Query:
        """A demonstration or a validation query, with its answer."""
        n = len(self.shots)
        return self.shots[place].as_query() if place < n else self.asked[place - n]


def read_texts(view: PoolView, plan: TopicPlan, seed: int, named: Collection[str] = ()) -> TopicTexts:
    """Texts of the active pool, or of `MOST_MINED` of its rows, and of the validation queries; which of them are for
    training, those whose core topics are given (``named``, by id) before others, and the questions to ask."""
    rows = some_of(view.rows, seed)
    shots = fetch(view.workspace, rows)
    validation = queries(view.workspace, "validation")
    apart, asked = halves(validation, seed) if plan.lambdas else ([], validation)
    texts = [
        *(text_of(shot.input, shot.options, shot.output) for shot in shots),
        *(text_of(query.input, query.options, "".join(query.answers[:1])) for query in asked),
    ]
    vectors = np.concatenate([view.vectors(rows), view.embed(asked)])
    of_queries = np.arange(len(rows), len(texts))
    rng = np.random.default_rng([seed, 5])
    drawn = rng.choice(len(rows), min(len(rows), plan.sample), replace=False)
    if named:
        first = np.flatnonzero([shot.id in named for shot in shots])
        drawn = np.concatenate([first, np.setdiff1d(drawn, first)])[: len(drawn)]
    drawn = np.sort(drawn)
    duplicates, which = np.unique(groups(view.workspace)[rows[drawn]], return_inverse=True)
    held_out = np.zeros(len(drawn) + len(asked), np.bool_)  # duplicates are held out together
    held_out[: len(drawn)] = (rng.random(len(duplicates)) < plan.held_out)[which]
    sampled = np.sort(rng.choice(len(rows), min(len(rows), plan.questions), replace=False))
    return TopicTexts(
        rows=rows,
        shots=shots,
        asked=asked,
        apart=apart,
        texts=texts,
        vectors=vectors,
        places=np.concatenate([drawn, of_queries]),
        held_out=held_out,
        questions=[*(shots[i].as_query() for i in sampled), *asked],
        question_places=np.concatenate([sampled, of_queries]),
    )


@dataclass(frozen=True, slots=True)
class MinedTopics:
    """The ``names`` of the topics, their ``vectors`` (topics, d), the ``index`` of the folded texts, and the topics
    that share words with each of them (``lexical``)."""

    names: Sequence[str]
    vectors: Float32s
    index: BM25Index
    lexical: Links


def mine_topics(read: TopicTexts, view: PoolView, plan: TopicPlan, seed: int, llm: LLMClient) -> MinedTopics:
    """The topics of the texts, or those of the user's own list, which may be one that cannot be read."""
    task, monitor = view.task, llm.monitor
    if plan.topics_file:
        names = read_list(Path(plan.topics_file))[: plan.size]
        vectors = view.encoded(names)
    else:
        labels = {*task.labels, *(answer for query in read.asked for answer in query.answers[:1])}
        named = label_topics(sorted(labels) if task.kind == "labels" else [])  # each label is a topic
        names, vectors = mine(read.texts, read.vectors, view.encoded, plan.size, named, seed, monitor, nouns=plan.nouns)
    index = bm25.build(np.arange(len(read.texts)), map(fold, read.texts), monitor)
    lexical = lexical_candidates(index, names, whole=not plan.as_printed, monitor=monitor)
    return MinedTopics(names, vectors, index, lexical)


@dataclass(frozen=True, slots=True)
class TopicTraining:
    """A prepared training run: every prompt about the texts that were ``read`` and the topics ``mined`` from them.

    ``labeller`` picks the core topics, as GPT-4o does in the paper, if it can (``by_llm``); it may be the ``llm``,
    whose knowledge is measured. ``notes`` are for the user.
    """

    llm: LLMClient
    plan: TopicPlan
    labeller: LLMClient
    started: float
    view: PoolView
    task: Task
    capabilities: Capabilities
    notes: tuple[str, ...]
    by_llm: bool
    read: TopicTexts
    mined: MinedTopics
    named: Mapping[str, Sequence[str]]
    core_requests: Sequence[Request]
    question_requests: Sequence[Request]
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: TopicPlan = TopicPlan(), labeller: LLMClient | None = None) -> TopicTraining:
        """Read and encode the texts, mine topics and write the prompts; in a dry run not even a probe is sent. Raises
        `UsageError` for an empty pool, a pool without vectors or phrases, or a list that cannot be read."""
        require("train topics", "torch")
        started, seed, settings = time.perf_counter(), llm.settings.seed, llm.settings
        labelling = labeller or llm
        view = PoolView(llm.workspace, settings, llm.monitor)
        size = len(view.rows)  # an empty pool is an error before the LLM is loaded
        capabilities = llm.capabilities
        notes = _notes(view, plan, labelling)
        named = read_core(Path(plan.core_file)) if plan.core_file else {}
        by_llm = not named and plan.llm_topics and labelling.capabilities.instructs
        needed = min(size, MOST_MINED) * MINED_BYTES + size * ROW_BYTES
        fix = (
            "stop with Ctrl+C and train on a machine with more, or prune the pool first: icl-curate prune --source NAME"
        )
        memory.warn(llm.monitor, "training takes", needed, fix)
        read = read_texts(view, plan, seed, named)
        if named:
            given = sum(read.example(place).id in named for place in read.places.tolist())
            if not given:
                raise UsageError(
                    f"no row or validation query that is learnt from has an id of {plan.core_file}",
                    "give the ids of this workspace's rows",
                )
            told = f"core topics of {given:,} of {len(read.places):,} texts are given"
            told += "; the others take the topics whose words they share"
            unused = f"; {counted(len(named) - given, 'line')} of the file for no text that is learnt from"
            notes += (f"{told}{unused}" if given < len(named) else told,)
        task = task_of(llm.workspace)
        mined = mine_topics(read, view, plan, seed, llm)
        core_requests = _core_requests(read, mined, seed) if by_llm else []
        question_requests = [
            request_for(prompt_for(query, [], task, settings)[0], settings, capabilities) for query in read.questions
        ]
        return cls(
            llm, plan, labelling, started, view, task, capabilities, notes, by_llm, read, mined, named,
            core_requests, question_requests, Grader.of(llm, task),
        )  # fmt: skip

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price, and with a judge those of its verdicts."""
        core, (questions, judging) = self.core_requests, self.grader.plans(self.llm, self.question_requests)
        if self.labeller is self.llm:
            parts = [self.llm.plan([*core, *self.question_requests])]
        else:
            parts = [self.labeller.plan(core), questions]
        if judging:
            parts.append(judging)
        if apart := self.read.apart:  # the picks of topics that are not learnt yet cost about as much as the nearest
            near = [rows.tolist() for rows, _ in self.view.dense_top(apart, self.llm.settings.k)]
            parts += [self.grader.plan(self.llm, self._asked_with(near))] * len(self.plan.lambdas)
        return reduce(together, parts)

    def ask(self, budget: Budget) -> TopicRun:
        """Ask what is not cached, train, store the model; returns the ``train --json`` contract."""
        described = (
            asdict(self.plan)
            | {
                "seed": self.llm.settings.seed,
                "encoder": self.view.stored.encoder,
                "by_llm": self.by_llm,
                "labelled_by": self.labeller.name if self.by_llm else "",
                "demonstrations": len(self.view.rows),
                "queries": len(self.read.asked),
                "version": VERSION,
            }
            | self.grader.told
        )
        with self.llm.recorded(store.KIND, described) as record:
            done = replace(self, grader=replace(self.grader))._learn(record.run, budget, described)
            record.summary = done.as_json()
        return done

    def _learn(self, run: int, budget: Budget, described: dict[str, Any]) -> TopicRun:
        llm, read, view = self.llm, self.read, self.view
        for note in self.notes:
            llm.monitor.report(Event(TASK, note=note))
        replies = self.labeller.ask(self.core_requests, budget)
        answers = llm.ask(self.question_requests, budget)
        names, name_vectors, core = self._core(replies)
        targets = self._targets(names, core)
        predictor, figures = self._train(name_vectors, core, targets)
        marks = self.grader.marks(read.questions, answers, budget)
        tally(marks).check()
        values, answered = values_of(marks), np.array([isinstance(answer, Answer) for answer in answers], np.bool_)
        usable = np.flatnonzero(answered & ~np.isnan(values))
        values = values[usable]
        knowledge = topical_knowledge(predictor, read.vectors[read.question_places[usable]], values)
        beside = llm.workspace.path / SHARDS
        of_rows = strongest(predictor, view.rows, view.vectors, llm.monitor, engine=view.engine, beside=beside)
        model = TopicModel(
            run, tuple(names), predictor, knowledge, view.stored.encoder, llm.name, self.plan.cosine, of_rows
        )
        chosen, tried = self._choose_cosine(model, budget)
        if chosen is not None:
            model = replace(model, cosine=chosen.cosine)
        save(llm.workspace, model, described)
        self._keep(run, answers, marks)
        store.save(llm.workspace, run, names, knowledge.share, knowledge.observations, self._linked(core, targets))
        metrics = TopicMetrics(
            fit=figures,
            topics=len(names),
            added_by_llm=len(names) - len(self.mined.names) if self.by_llm else 0,
            core_by_llm=self.by_llm,
            demonstrations=len(view.rows),
            examples=len(read.places),
            core_per_example=len(core.topics) / max(len(core), 1),
            questions=len(usable),
            zero_shot_accuracy=float(values.mean()) if len(usable) else None,
            notes=self.notes,
            seconds=time.perf_counter() - self.started,
            chosen=chosen,
            judge=self.grader.judging,
        )
        return TopicRun(run, llm.name, usage_of([*replies, *answers, *tried]), metrics)

    def _choose_cosine(self, model: TopicModel, budget: Budget) -> tuple[LambdaChoice | None, list[Result]]:
        """The λ with which the LLM answers the queries apart best, the largest of equals, and all its answers."""
        apart = self.read.apart
        if not apart:
            return None, []
        opened = loaded(model, self.view)
        values: list[Float64s] = []
        heard: list[Result] = []
        for cosine in self.plan.lambdas:
            picks = chosen_by(opened.with_cosine(cosine), self.view, apart, self.llm.settings.k)
            answers = self.llm.ask(self._asked_with([[pick.row for pick in picked] for picked in picks]), budget)
            marks = self.grader.marks(apart, answers, budget)
            tally(marks).check()
            values.append(values_of(marks))
            heard += answers
        both = ~np.isnan(values).any(axis=0)  # the same queries for every λ
        trials = [
            LambdaTrial(cosine, float(own[both].mean())) for cosine, own in zip(self.plan.lambdas, values, strict=True)
        ]
        best = max(trials, key=lambda trial: (trial.accuracy, trial.cosine))
        return LambdaChoice(best.cosine, len(apart), tuple(trials)), heard

    def _asked_with(self, rows: Sequence[Sequence[int]]) -> list[Request]:
        """The queries apart, each with its rows as demonstrations."""
        settings = self.llm.settings
        limit = prompt_budget(settings, self.capabilities)
        prompts = [
            prompt_for(query, shots, self.task, settings, self.llm.backend, limit)[0]
            for query, shots in zip(self.read.apart, self.view.demonstrations(rows), strict=True)
        ]
        return [request_for(prompt, settings, self.capabilities) for prompt in prompts]

    def _keep(self, run: int, answers: Sequence[Result], marks: Sequence[Mark]) -> None:
        """Store the zero-shot answers to demonstrations: they are evidence about them. A refusal is none: no
        demonstration was in the prompt that could gain by it, and of the row's output nothing was said."""
        read = self.read
        asked = len(read.questions) - len(read.asked)
        given = [
            (i, answer.text, mark.right)
            for i, (answer, mark) in enumerate(zip(answers[:asked], marks[:asked], strict=True))
            if isinstance(answer, Answer) and mark.right is not None
        ]
        rows = read.rows[read.question_places[np.array([i for i, *_ in given], np.int64)]]
        right = np.array([is_right for *_, is_right in given], np.bool_)
        texts = [text for _, text, _ in given]
        answered = RowAnswers(rows, texts, right, np.full(len(given), np.nan), [()] * len(given))
        row_answers.save_answers(self.llm.workspace, run, answered)

    def _core(self, replies: Sequence[Result]) -> tuple[Sequence[str], Float32s, Links]:
        """The topics, including those the LLM added, their vectors, and the core topics of the examples."""
        mined, lexical = self.mined, self.mined.lexical.some(self.read.places)
        if self.by_llm:
            picks: list[Sequence[str]] = [
                topics_in(reply.text) if isinstance(reply, Answer) else [] for reply in replies
            ]
            least = 1 if self.plan.as_printed else NAMINGS
        elif self.named:
            picks = [self.named.get(self.read.example(place).id, ()) for place in self.read.places.tolist()]
            least = 1
        else:
            return mined.names, mined.vectors, lexical
        names, core = core_topics(mined.names, lexical, picks, least)
        added = names[len(mined.names) :]
        if not added:
            return names, mined.vectors, core
        return names, np.concatenate([mined.vectors, self.view.encoded(added)]), core

    def _targets(self, names: Sequence[str], core: Links) -> Links:
        """The core topics, each with what the predictor learns of it."""
        if not self.plan.soft:
            return Links(core.starts, core.topics, np.ones(len(core.topics), np.float32))
        read, monitor = self.read, self.llm.monitor
        pool = read.vectors[: len(read.shots)]
        own = np.where(read.places < len(read.shots), read.places, -1)
        near = neighbours(read.vectors[read.places], pool, own, monitor=monitor)
        return distinctiveness(self.mined.index, names, core, read.places, near, monitor)

    def _train(self, name_vectors: Float32s, core: Links, targets: Links) -> tuple[Predictor, FitFigures]:
        seed, read = self.llm.settings.seed, self.read
        vectors = read.vectors[read.places]
        rates = np.bincount(core.topics, minlength=len(name_vectors)) / max(len(core), 1)
        start = started(name_vectors, rates.astype(np.float32), seed)
        plan, monitor = self.plan, self.llm.monitor
        predictor, history = fit(start, vectors, targets, read.held_out, plan.epochs, plan.rate, seed, monitor)
        judged = np.flatnonzero(read.held_out)
        by_name = ranking_quality(lambda at: vectors[at] @ name_vectors.T, core, judged)
        by_topics = quality(predictor, vectors, core, judged)
        return predictor, FitFigures(by_topics, len(judged), by_name, tuple(history))

    def _linked(self, core: Links, targets: Links) -> tuple[Int64s, Int64s, Float32s]:
        """Row, topic and weight of every core topic of a demonstration."""
        places = self.read.places[core.texts()]
        pool = places < len(self.read.shots)
        return self.read.rows[places[pool]], core.topics[pool], targets.weights[pool]


def _notes(view: PoolView, plan: TopicPlan, labeller: LLMClient) -> tuple[str, ...]:
    notes = []
    if plan.llm_topics and not plan.core_file and not labeller.capabilities.instructs:
        notes.append(f"{labeller.name} does not follow instructions: core topics are chosen by word overlap")
    if len(view.rows) > MOST_MINED:
        notes.append(f"topics are mined from {MOST_MINED:,} of {len(view.rows):,} demonstrations, at random")
    return tuple(notes)


def _core_requests(read: TopicTexts, mined: MinedTopics, seed: int) -> list[Request]:
    lexical = mined.lexical.some(read.places)
    semantic = semantic_candidates(read.vectors[read.places], mined.vectors, lexical)
    requests = []
    for i, place in enumerate(read.places.tolist()):
        shown = [mined.names[t] for t in [*lexical.of(i), *semantic.of(i)]]
        requests.append(core_request(read.example(place), shown, seed))
    return requests


def halves(asked: Sequence[Query], seed: int) -> tuple[list[Query], list[Query]]:
    """Two random halves in their order. Raises `UsageError` for fewer than four queries."""
    if len(asked) < 4:
        raise UsageError("choosing λ needs at least four validation queries", "icl-curate train topics --lambda 1")
    first = np.random.default_rng([seed, 6]).permutation(len(asked)) < len(asked) // 2
    return [q for q, own in zip(asked, first, strict=True) if own], [
        q for q, own in zip(asked, first, strict=True) if not own
    ]


def text_of(input: str, options: Sequence[str], output: str = "") -> str:
    """The text in which a demonstration's topics are searched: its input, its options and its output, separated."""
    given = [*options, *([output] if output and output not in options else [])]
    return ". ".join([input, *given])


def some_of(rows: Int64s, seed: int) -> Int64s:
    """The rows, or a random `MOST_MINED` of them, ascending."""
    if len(rows) <= MOST_MINED:
        return rows
    return np.sort(np.random.default_rng([seed, 6]).choice(rows, MOST_MINED, replace=False))
