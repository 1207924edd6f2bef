"""Training of a pool's topics: the topics, their demonstrations, and what the LLM knows of them (paper 004).

Validation queries are used, inputs and answers, and so is whether the LLM answers them zero-shot: otherwise a topic
missing from the pool would have no name, and no gap would be found. Test queries are never used.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base import memory
from ...base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread, top_k
from ...base.errors import UsageError
from ...base.packages import VERSION, require
from ...base.progress import CancelToken, Event, Report, silent
from ...llm.asking import prompt_budget, prompt_for, request_for
from ...llm.budget import Budget
from ...llm.client import LLMClient
from ...llm.cost import Plan, together, usage_of
from ...llm.marks import marked, tally, values_of
from ...llm.types import Answer, Request, Result
from ...pool.answers import is_correct
from ...pool.records import Query
from ...pool.words import fold
from ...retrieval import bm25
from ...retrieval.bm25 import BM25Index
from ...retrieval.view import PoolView
from ...shards.over import SHARDS
from ...store import runs
from ...store import trials as row_answers
from ...store.demonstrations import fetch, groups, queries, task_of
from ...store.trials import RowAnswers
from . import stored as store
from .match import NAMINGS, Links, core_request, core_topics, lexical_candidates, links_of, semantic_candidates
from .mining import label_topics, mine, read_list
from .model_file import TopicModel, save, strongest
from .predictor import FitOptions, Predictor, fit, quality, ranking_quality, started, topical_knowledge
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
    found: Float64s = own - (top + np.log(total))
    return found


def soft_targets(log_dst: Float64s, starts: Int64s) -> Float32s:
    """Each distinctiveness divided by the largest of its text (eq. 3); text i has ``log_dst[starts[i]:starts[i +
    1]]``."""
    if not len(log_dst):
        return np.empty(0, np.float32)
    lengths = np.diff(starts)
    best = np.maximum.reduceat(log_dst, starts[:-1][lengths > 0])
    targets: Float32s = np.exp(log_dst - np.repeat(best, lengths[lengths > 0])).astype(np.float32)
    return targets


def neighbours(
    vectors: Float32s,
    pool: Float32s,
    own: Int64s,
    count: int = NEIGHBOURS,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Int64s:
    """Positions in ``pool`` (n, d) of the ``count`` vectors nearest to each of ``vectors`` (m, d), (m, count).

    ``own`` (m,) is a text's own position in the pool, which is left out, or -1.
    """
    count = min(count, len(pool) - (1 if (own >= 0).any() else 0))
    found = np.empty((len(vectors), max(count, 0)), np.int64)
    with one_blas_thread():
        for start in range(0, len(vectors), _CHUNK):
            if cancel:
                cancel.check()
            report(Event(TARGETS_TASK, start, len(vectors)))
            scores = np.asarray(vectors[start : start + _CHUNK]) @ pool.T
            mine = own[start : start + _CHUNK]
            scores[np.flatnonzero(mine >= 0), mine[mine >= 0]] = -np.inf
            for i, row in enumerate(scores, start):
                found[i] = top_k(row, count)
    return found


def distinctiveness(
    index: BM25Index,
    names: Sequence[str],
    core: Links,
    places: Int64s,
    near: Int64s,
    report: Report = silent,
    cancel: CancelToken | None = None,
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
            if cancel:
                cancel.check()
            report(Event(TARGETS_TASK, topic, len(names)))
        links = by_topic[bounds[topic] : bounds[topic + 1]]
        if len(links):
            scores = index.scores(fold(name))
            texts = owner[links]
            log_dst[links] = log_distinctiveness(scores[places[texts]], scores[near[texts]])
    report(Event(TARGETS_TASK, len(names), len(names)))
    return Links(core.starts, core.topics, soft_targets(log_dst, core.starts))


TASK = "topics"
MOST_MINED = 250_000
"""Demonstrations from which topics are mined: a million held 6.5 GB."""
MINED_BYTES, ROW_BYTES = 6_000, 350
"""Memory for each of those, and for each row whose topics are predicted, measured on short rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """How topics are trained.

    ``topics_file``: the user's own list instead of mining; ``size``: maximum number of topics. ``llm_topics``: the LLM
    picks the core topics, otherwise word overlap does. ``sample``: maximum demonstrations for training the predictor
    (and for the LLM to read); ``questions``: demonstrations asked zero-shot for topical knowledge. ``soft``: targets by
    distinctiveness (eq. 2 and 3), else 1. ``cosine``: λ of the final score, which the paper chooses in [0.1, 1] on
    validation. ``held_out``: share for evaluation only. ``as_printed``: candidates by BM25 even where a word of the
    topic is missing, and every topic that the LLM adds, even for one text alone. ``nouns``: mine no single words but
    nouns. ``lambdas``: choose λ among these, on
    half of the validation queries, from which nothing else is learnt.
    """

    topics_file: str = ""
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


class TopicTraining:
    """A prepared training run: topics are mined and every prompt is known, nothing has been sent yet.

    ``labeller`` picks the core topics, as GPT-4o does in the paper; without it, the ``llm`` does, whose knowledge is
    measured. ``notes`` are for the user. Raises `UsageError` for an empty pool, a pool without vectors or phrases, or a
    list that cannot be read; in a dry run not even a probe is sent.
    """

    def __init__(
        self,
        llm: LLMClient,
        plan: TopicPlan = TopicPlan(),
        labeller: LLMClient | None = None,
    ) -> None:
        require("train topics", "torch")
        self.llm, self.plan = llm, plan
        self.labeller = labeller or llm
        self.workspace, self.settings = llm.workspace, llm.settings
        self.report, self.cancel = llm.report, llm.cancel
        self.started = time.perf_counter()
        self.capabilities = llm.capabilities
        self.view = PoolView(self.workspace, self.settings, self.report, self.cancel)
        self.notes = self._notes()
        self.by_llm = plan.llm_topics and self.labeller.capabilities.instructs
        self._tell_memory()
        self._read()
        self._mine()
        self.core_requests = self._core_requests() if self.by_llm else []
        self.question_requests = [self._zero_shot(query) for query in self.questions]

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price."""
        if self.labeller is self.llm:
            cost = self.llm.plan([*self.core_requests, *self.question_requests])
        else:
            cost = together(self.labeller.plan(self.core_requests), self.llm.plan(self.question_requests))
        if self.apart:  # the picks of topics that are not learnt yet cost about as much as the nearest
            near = [rows.tolist() for rows, _ in self.view.dense_top(self.apart, self.settings.k)]
            each = self.llm.plan(self._asked_with(near))
            for _ in self.plan.lambdas:
                cost = together(cost, each)
        return cost

    def ask(self, budget: Budget) -> TopicRun:
        """Ask what is not cached, train, store the model; returns the ``train --json`` contract."""
        described = asdict(self.plan) | {
            "seed": self.settings.seed,
            "encoder": self.view.stored.encoder,
            "by_llm": self.by_llm,
            "labelled_by": self.labeller.name if self.by_llm else "",
            "demonstrations": len(self.view.rows),
            "queries": len(self.asked),
            "version": VERSION,
        }
        with runs.recorded(self.workspace, store.KIND, self.llm.name, described) as record:
            done = self._learn(record.run, budget, described)
            record.summary = done.as_json()
        return done

    # preparation

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.plan.llm_topics and not self.labeller.capabilities.instructs:
            notes.append(f"{self.labeller.name} does not follow instructions: core topics are chosen by word overlap")
        if len(self.view.rows) > MOST_MINED:
            notes.append(f"topics are mined from {MOST_MINED:,} of {len(self.view.rows):,} demonstrations, at random")
        return tuple(notes)

    def _tell_memory(self) -> None:
        rows = len(self.view.rows)
        needed = min(rows, MOST_MINED) * MINED_BYTES + rows * ROW_BYTES
        fix = (
            "stop with Ctrl+C and train on a machine with more, or prune the pool first: icl-curate prune --source NAME"
        )
        memory.warn(self.report, "training takes", needed, fix)

    def _read(self) -> None:
        """Texts of the active pool, or of `MOST_MINED` of its rows, and of the validation queries; which of them are
        for training, and the questions to ask."""
        seed = self.settings.seed
        rows = self.mined = some_of(self.view.rows, seed)
        self.shots = fetch(self.workspace, rows)
        validation = queries(self.workspace, "validation")
        self.apart, self.asked = halves(validation, seed) if self.plan.lambdas else ([], validation)
        self.task = task_of(self.workspace)
        self.texts = [
            *(text_of(shot.input, shot.options, shot.output) for shot in self.shots),
            *(text_of(query.input, query.options, "".join(query.answers[:1])) for query in self.asked),
        ]
        self.pool_vectors = self.view.vectors(rows)
        self.query_vectors = self.view.embed(self.asked)
        self.vectors = np.concatenate([self.pool_vectors, self.query_vectors])
        rng = np.random.default_rng([seed, 5])
        drawn = np.sort(rng.choice(len(rows), min(len(rows), self.plan.sample), replace=False))
        self.places = np.concatenate([drawn, np.arange(len(rows), len(self.texts))])
        group = groups(self.workspace)[rows[drawn]]
        apart, which = np.unique(group, return_inverse=True)
        self.held_out = np.zeros(len(self.places), np.bool_)  # duplicates are held out together
        self.held_out[: len(drawn)] = (rng.random(len(apart)) < self.plan.held_out)[which]
        sampled = np.sort(rng.choice(len(rows), min(len(rows), self.plan.questions), replace=False))
        self.questions = [*(self.shots[i].as_query() for i in sampled), *self.asked]
        self.question_places = np.concatenate([sampled, np.arange(len(rows), len(self.texts))])

    def _mine(self) -> None:
        """The topics, their vectors and the candidates of every text."""
        if self.plan.topics_file:
            self.names = read_list(Path(self.plan.topics_file))[: self.plan.size]
            self.name_vectors = self.view.encoded(self.names)
        else:
            self.names, self.name_vectors = mine(
                self.texts,
                self.vectors,
                self.view.encoded,
                self.plan.size,
                label_topics(self._labels()),
                self.settings.seed,
                self.report,
                self.cancel,
                nouns=self.plan.nouns,
            )
        self.index = bm25.build(np.arange(len(self.texts)), map(fold, self.texts), self.report, self.cancel)
        self.lexical = lexical_candidates(
            self.index, self.names, whole=not self.plan.as_printed, report=self.report, cancel=self.cancel
        )

    def _labels(self) -> list[str]:
        """Labels of a pool with a closed set of outputs, and of its validation queries: each is a topic."""
        if self.task.kind != "labels":
            return []
        return sorted({*self.task.labels, *(answer for query in self.asked for answer in query.answers[:1])})

    def _core_requests(self) -> list[Request]:
        lexical = picked(self.lexical, self.places)
        semantic = semantic_candidates(self.vectors[self.places], self.name_vectors, lexical)
        requests = []
        for i, place in enumerate(self.places.tolist()):
            shown = [self.names[t] for t in [*lexical.of(i), *semantic.of(i)]]
            requests.append(core_request(self._example(place), shown, self.settings.seed))
        return requests

    def _example(self, place: int) -> Query:
        """A demonstration or a validation query, with its answer."""
        n = len(self.shots)
        return self.shots[place].as_query() if place < n else self.asked[place - n]

    def _zero_shot(self, query: Query) -> Request:
        return request_for(prompt_for(query, [], self.task, self.settings)[0], self.settings, self.capabilities)

    # training

    def _learn(self, run: int, budget: Budget, described: dict[str, Any]) -> TopicRun:
        for note in self.notes:
            self.report(Event(TASK, note=note))
        replies = self.labeller.ask(self.core_requests, budget)
        answers = self.llm.ask(self.question_requests, budget)
        names, name_vectors, core = self._core(replies)
        predictor, figures = self._train(names, name_vectors, core)
        tally(marked(self.questions, answers, self.task)).check()
        right = self._marked(self.questions, answers)
        usable = np.array([isinstance(answer, Answer) for answer in answers], np.bool_)
        knowledge = topical_knowledge(predictor, self.vectors[self.question_places[usable]], right[usable])
        rows = self.view.rows
        model = TopicModel(
            run,
            tuple(names),
            predictor,
            knowledge,
            self.view.stored.encoder,
            self.llm.name,
            self.plan.cosine,
            strongest(
                predictor,
                rows,
                self.view.vectors,
                self.report,
                self.cancel,
                engine=self.view.engine,
                beside=self.workspace.path / SHARDS,
            ),
        )
        chosen, tried = self._choose_cosine(model, budget)
        if chosen is not None:
            model = replace(model, cosine=chosen.cosine)
        save(self.workspace, model, described)
        self._keep(run, answers, right)
        store.save(self.workspace, run, names, knowledge.share, knowledge.observations, self._linked(core))
        metrics = TopicMetrics(
            fit=figures,
            topics=len(names),
            added_by_llm=len(names) - len(self.names),
            core_by_llm=self.by_llm,
            demonstrations=len(rows),
            examples=len(self.places),
            core_per_example=len(core.topics) / max(len(core), 1),
            questions=int(usable.sum()),
            zero_shot_accuracy=float(right[usable].mean()) if usable.any() else None,
            notes=self.notes,
            seconds=time.perf_counter() - self.started,
            chosen=chosen,
        )
        return TopicRun(run, self.llm.name, usage_of([*replies, *answers, *tried]), metrics)

    def _choose_cosine(self, model: TopicModel, budget: Budget) -> tuple[LambdaChoice | None, list[Result]]:
        """The λ with which the LLM answers most of the queries apart, the largest of equals, and all its answers."""
        if not self.apart:
            return None, []
        opened = loaded(model, self.view)
        right: list[Float64s] = []
        heard: list[Result] = []
        for cosine in self.plan.lambdas:
            picks = chosen_by(opened.with_cosine(cosine), self.view, self.apart, self.settings.k)
            answers = self.llm.ask(self._asked_with([[pick.row for pick in each] for each in picks]), budget)
            marks = marked(self.apart, answers, self.task)
            tally(marks).check()
            right.append(values_of(marks))
            heard += answers
        both = ~np.isnan(right).any(axis=0)  # the same queries for every λ
        trials = [
            LambdaTrial(cosine, float(own[both].mean())) for cosine, own in zip(self.plan.lambdas, right, strict=True)
        ]
        best = max(trials, key=lambda trial: (trial.accuracy, trial.cosine))
        return LambdaChoice(best.cosine, len(self.apart), tuple(trials)), heard

    def _asked_with(self, rows: Sequence[Sequence[int]]) -> list[Request]:
        """The queries apart, each with its rows as demonstrations."""
        limit = prompt_budget(self.settings, self.capabilities)
        prompts = [
            prompt_for(query, shots, self.task, self.settings, self.llm.backend, limit)[0]
            for query, shots in zip(self.apart, self.view.demonstrations(rows), strict=True)
        ]
        return [request_for(prompt, self.settings, self.capabilities) for prompt in prompts]

    def _keep(self, run: int, answers: Sequence[Result], right: Bools) -> None:
        """Store the zero-shot answers to demonstrations: they are evidence about them."""
        asked = len(self.questions) - len(self.asked)
        given = [(i, answer) for i, answer in enumerate(answers[:asked]) if isinstance(answer, Answer)]
        places = np.array([i for i, _ in given], np.int64)
        rows = self.mined[self.question_places[places]]
        texts = [answer.text for _, answer in given]
        answered = RowAnswers(rows, texts, right[places], np.full(len(given), np.nan), [()] * len(given))
        row_answers.save_answers(self.workspace, run, answered)

    def _core(self, replies: Sequence[Result]) -> tuple[list[str], Float32s, Links]:
        """The topics, including those the LLM added, their vectors, and the core topics of the examples."""
        lexical = picked(self.lexical, self.places)
        if not self.by_llm:
            return self.names, self.name_vectors, lexical
        names, core = core_topics(self.names, lexical, replies, 1 if self.plan.as_printed else NAMINGS)
        added = names[len(self.names) :]
        if not added:
            return names, self.name_vectors, core
        fresh = self.view.encoded(added)
        return names, np.concatenate([self.name_vectors, fresh]), core

    def _train(self, names: Sequence[str], name_vectors: Float32s, core: Links) -> tuple[Predictor, FitFigures]:
        seed, vectors = self.settings.seed, self.vectors[self.places]
        if self.plan.soft:
            own = np.where(self.places < len(self.shots), self.places, -1)
            near = neighbours(vectors, self.pool_vectors, own, report=self.report, cancel=self.cancel)
            targets = distinctiveness(self.index, names, core, self.places, near, self.report, self.cancel)
        else:
            targets = Links(core.starts, core.topics, np.ones(len(core.topics), np.float32))
        self.targets = targets
        rates = np.bincount(core.topics, minlength=len(names)) / max(len(core), 1)
        options = FitOptions(epochs=self.plan.epochs, rate=self.plan.rate)
        predictor, history = fit(
            started(name_vectors, rates.astype(np.float32), seed),
            vectors,
            targets,
            self.held_out,
            options,
            seed,
            report=self.report,
            cancel=self.cancel,
        )
        judged = np.flatnonzero(self.held_out)
        by_name = ranking_quality(lambda at: vectors[at] @ name_vectors.T, core, judged)
        by_topics = quality(predictor, vectors, core, judged)
        return predictor, FitFigures(by_topics, len(judged), by_name, tuple(history))

    def _marked(self, asked: Sequence[Query], answers: Sequence[Result]) -> Bools:
        return np.array(
            [
                isinstance(answer, Answer) and is_correct(answer.text, query.answers, self.task.choices(query))
                for query, answer in zip(asked, answers, strict=True)
            ],
            np.bool_,
        )

    def _linked(self, core: Links) -> tuple[Int64s, Int64s, Float32s]:
        """Row, topic and weight of every core topic of a demonstration."""
        places = self.places[core.texts()]
        pool = places < len(self.shots)
        return self.mined[places[pool]], core.topics[pool], self.targets.weights[pool]


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


def picked(links: Links, texts: Int64s) -> Links:
    """The links of some texts, renumbered by their position in ``texts``."""
    lengths = np.diff(links.starts)[texts]
    at = np.repeat(links.starts[texts] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    return links_of(len(texts), np.repeat(np.arange(len(texts)), lengths), links.topics[at], links.weights[at])
