"""The documents of a query: its own or demonstrations of the pool, and which of these are relevant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ...base.errors import UsageError
from ...base.progress import SILENT, Monitor
from ...llm.graded import metric_set
from ...pool.answers import normalise
from ...pool.fields import query_of
from ...pool.prompts import Prompt, documents_of
from ...pool.records import Demonstration, Message, Query, Split, Task
from ...prompting.template import largest
from ...retrieval.view import PoolView
from ...select.selector import Selected, Selector
from ...store.demonstrations import active_rows, fetch, find, queries
from ...store.settings import Settings
from ...store.workspace import Workspace
from .prompts import Case, Document, Frame, Over, first_prompt, with_documents
from .rounds import Grades
from .scores import document_scores

OverOption = Literal["auto", "documents", "demonstrations", "steps"]
ROLES = "documents"
"""Metadata field in which a query may give the role of each of its documents; only ``relevant`` is used."""


def cases_for(
    workspace: Workspace,
    asked: Sequence[Query],
    task: Task,
    settings: Settings,
    choice: OverOption = "auto",
    monitor: Monitor = SILENT,
    selector: Selector | None = None,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> list[Case]:
    """One case per query. ``auto`` uses the query's documents if there are two or more, else demonstrations by
    ``settings.method``. Documents are cut to ``settings.document_tokens`` as ``count_tokens`` counts them. Raises
    `UsageError` if documents are required and a query has none."""
    cut = cut_to(settings.document_tokens, count_tokens)
    own = [[cut(text) for text in documents_of(query.context)] for query in asked]
    over: list[Over] = [
        choice if choice != "auto" else "documents" if len(texts) > 1 else "demonstrations" for texts in own
    ]
    for query, texts, kind in zip(asked, own, over, strict=True):
        if kind == "documents" and not texts:
            name = query.id or query.input
            raise UsageError(f"the query '{name}' has no documents", "--over demonstrations scores those")
    pooled = [i for i, kind in enumerate(over) if kind == "demonstrations"]
    selected: dict[int, list[Selected]] = {}
    if pooled:
        selector = selector or Selector(workspace, settings=settings, monitor=monitor)
        selected = dict(zip(pooled, selector.select_many([asked[i] for i in pooled]), strict=True))
    grades = Grades(task, metric_set(workspace, settings, task))
    metadata = {row.row: row.metadata for row in fetch(workspace, [q.row for q in asked if q.row is not None])}
    cases = []
    for i, query in enumerate(asked):
        if over[i] == "steps":
            documents = []  # not known before the LLM has reasoned
        elif i in selected:
            documents = [_as_document(query, shot.demonstration, grades) for shot in selected[i]]
        else:
            roles = metadata.get(-1 if query.row is None else query.row, {}).get(ROLES)
            relevant = relevant_documents(query, own[i], roles)
            documents = [Document(str(n), *pair) for n, pair in enumerate(zip(own[i], relevant, strict=True), 1)]
        cases.append(with_documents(Case(query, (), over[i]), documents))
    return cases


def queries_of(workspace: Workspace, split: Split, limit: int | None = None) -> list[Query]:
    """The queries of a split, in the order they were indexed; for the pool, the active rows as questions."""
    if split != "pool":
        return queries(workspace, split, limit)
    return [row.as_query() for row in fetch(workspace, active_rows(workspace)[:limit])]


def query_named(
    workspace: Workspace, text: str, options: Sequence[str] = (), context: str = "", fields: Mapping[str, Any] = {}
) -> Query:
    """The indexed query with this id, with its answers; else a new query with this text."""
    if not options and not context and not fields:
        try:
            return find(workspace, text).as_query()
        except UsageError:
            pass
    return query_of({**fields, "input": text, "options": list(options), "context": context})


def relevant_documents(query: Query, texts: Sequence[str], roles: Any = None) -> list[bool | None]:
    """Which documents help: according to the query's metadata, else those that contain an accepted answer literally
    (distant supervision, Karpukhin et al. 2020, section 4.2); None if no answer is known."""
    if isinstance(roles, list) and len(roles) == len(texts):
        return [role == "relevant" for role in roles]
    accepted = [f" {normalise(answer)} " for answer in query.answers if normalise(answer)]
    if not accepted:
        return [None] * len(texts)
    return [any(answer in f" {normalise(text)} " for answer in accepted) for text in texts]


def _as_document(query: Query, shot: Demonstration, grades: Grades) -> Document:
    """A demonstration is relevant if its output is an answer to the query."""
    relevant = grades.says(query, shot.output) if query.answers else None
    return Document(shot.id, as_text(shot), relevant, shot)


def as_text(shot: Demonstration) -> str:
    """A demonstration as the text of a document."""
    return f"{shot.input} → {shot.output}"


def encoder_scores(view: PoolView, cases: Sequence[Case]) -> list[tuple[float | None, ...]]:
    """Scores of documents from an external relevance model, the encoder: min-max of minus the cosine with the query
    (paper 001, table 6)."""
    texts = {document.text for case in cases for document in case.documents} | {case.query.input for case in cases}
    order = sorted(texts)
    vectors = view.encoder.encode(order, view.monitor)
    place = {text: i for i, text in enumerate(order)}
    scores = []
    for case in cases:
        question = vectors[place[case.query.input]]
        documents = vectors[[place[document.text] for document in case.documents]].reshape(-1, question.size)
        scores.append(document_scores((-(documents.astype(np.float64) @ question)).tolist()))
    return scores


def fitted(
    case: Case, frame: Frame, count_tokens: Callable[[Prompt], int], limit: int | None, spare: int
) -> tuple[Case, bool]:
    """The case shortened so that its first prompt leaves ``spare`` of ``limit`` tokens for scores and earlier answers.

    Documents are cut to a common number of words (the paper cuts them to 200 tokens); of demonstrations the weakest are
    dropped. Also returns whether anything was cut.
    """
    if limit is None or count_tokens(first_prompt(case, frame)) + spare <= limit:
        return case, False
    over_documents = case.over == "documents"
    most = max((len(d.text.split()) for d in case.documents), default=0) if over_documents else len(case.documents)
    size = largest(most, lambda size: count_tokens(first_prompt(_cut(case, size), frame)) + spare <= limit)
    return _cut(case, size), True


def cut_to(tokens: int | None, count_tokens: Callable[[Prompt], int] | None) -> Callable[[str], str]:
    """Cuts a document to the words that fit into ``tokens`` tokens (paper 001, A.1); None: leaves it whole."""
    if tokens is None or count_tokens is None:
        return lambda text: text

    def size(text: str) -> int:
        return count_tokens(Prompt((Message("user", text),), Query("")))

    most = tokens + size("")  # what surrounds a message is no part of the document

    def cut(text: str) -> str:
        if size(text) <= most:
            return text
        return _words(text, largest(len(text.split()), lambda words: size(_words(text, words)) <= most))

    return cut


def _cut(case: Case, size: int) -> Case:
    if case.over == "demonstrations":
        return with_documents(case, case.documents[:size])
    return with_documents(case, [replace(d, text=_words(d.text, size)) for d in case.documents])


def _words(text: str, count: int) -> str:
    """The first words of a text, with its line breaks; at least one, so that no document disappears."""
    at = 0
    for _ in range(max(count, 1)):
        while at < len(text) and text[at].isspace():
            at += 1
        while at < len(text) and not text[at].isspace():
            at += 1
    return text[:at]
