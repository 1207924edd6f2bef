"""The runtime selector, shared by `preview`, `evaluate` and serving processes, and what it selects as JSON, with the
reasons for the scores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from ..base.errors import UsageError, did_you_mean
from ..base.progress import SILENT, Monitor
from ..pool.fields import RECORD, query_of, require
from ..pool.prompts import Prompt, system_prompt
from ..pool.records import Demonstration, Message, Query, Task
from ..retrieval.view import PoolView
from ..store.settings import Overrides, Settings, resolve
from ..store.workspace import Workspace
from .lock import check_lock, read_lock
from .methods import METHODS, Method, Need, Pick


@dataclass(frozen=True, slots=True)
class Selected:
    """A demonstration and its score."""

    demonstration: Demonstration
    score: float
    parts: Mapping[str, float]
    adds: tuple[tuple[str, float], ...] = ()


def method_named(name: str, others: Iterable[str] = ()) -> Method:
    """The method, or `UsageError` with the most similar name, ``others`` among them."""
    if name in METHODS:
        return METHODS[name]
    names = [*METHODS, *others]
    raise UsageError(f"unknown method '{name}'{did_you_mean(name, names, ',')}", f"use one of: {', '.join(names)}")


Asked = Query | str | Mapping[str, Any]
"""A query; its text; or a record with its ``input`` and further fields, see `query_of`."""


def _opened(path: Path, settings: Settings) -> Selector:
    return Selector(path, settings=settings)


class Selector:
    """Selects demonstrations for queries without calling an LLM.

    ``workspace`` is a `Workspace` or its path; ``method`` and ``k`` override the configured ones, as does any further
    `Settings` field given by name; beside whole ``settings`` only these two can be given. Raises `UsageError` for an
    unknown method or setting, `WorkspaceError` if there is no workspace. A query without a field that the prompt reads
    of it is refused with `UsageError`. The pool is read once, at the first selection; `refresh` reads it again.
    Selectors of several methods may share one ``view``. A copy, also one in another process (it can be pickled), reads
    the pool itself.

        selector = Selector(".icl-curate", method="dpp", k=8)
        for shot in selector.select("my card was declined"):
            print(shot.score, shot.demonstration.input, shot.demonstration.output)
        selector.select({"input": "my card was declined", "tier": "gold"})
    """

    def __init__(
        self,
        workspace: Workspace | Path | str,
        method: str | None = None,
        k: int | None = None,
        *,
        settings: Settings | None = None,
        view: PoolView | None = None,
        monitor: Monitor = SILENT,
        **overrides: Unpack[Overrides],
    ) -> None:
        self.workspace = workspace if isinstance(workspace, Workspace) else Workspace.open(Path(workspace))
        if settings is None:
            self.settings = resolve(self.workspace.path, {**overrides, "method": method, "k": k}).settings
        elif overrides:
            raise UsageError(f"{next(iter(overrides))} is given beside settings", "set it in the settings")
        else:
            self.settings = replace(settings, method=method or settings.method, k=settings.k if k is None else k)
        if self.settings.k < 0:
            raise UsageError(f"k is {self.settings.k}", "use 0 or more shots")
        self.method = method_named(self.settings.method)
        self.reads = self.settings.reads
        self.view = view or PoolView(self.workspace, self.settings, monitor)

    @classmethod
    def locked(cls, workspace: Workspace | Path | str) -> Selector:
        """A selector of exactly what was judged: with the settings of the workspace's lock, on its pool. Raises
        `UsageError` if there is no lock, or if pool or models have changed since."""
        opened = workspace if isinstance(workspace, Workspace) else Workspace.open(Path(workspace))
        lock = read_lock(opened)
        check_lock(opened, lock)
        return cls(opened, settings=lock.applied(resolve(opened.path, {}).settings))

    @property
    def task(self) -> Task:
        return self.view.task

    def select(self, query: Asked) -> list[Selected]:
        """Up to ``k`` demonstrations, best first, never the query itself or its near duplicate."""
        return self.select_many([query])[0]

    def select_many(self, queries: Sequence[Asked], seed: int | None = None) -> list[list[Selected]]:
        """One list per query, in order; encodes and searches in batches."""
        several = isinstance(queries, Iterable) and not isinstance(queries, str | Mapping)
        if not several or hasattr(queries, "columns"):  # one query, or a frame, whose members are names of columns
            raise UsageError(f"the queries are of type {type(queries).__name__}, not a list", "select_many([query, …])")
        asked = [query_of(query) for query in queries]
        for query in asked:
            require(query, self.reads)
        return self.resolve(self.picks(asked, seed))

    def prompt(self, query: Asked) -> Prompt:
        """The prompt that was judged, with the demonstrations selected for the query. Raises `UsageError` if the lock
        names a program, which makes its own prompts, or if the query `lacks_system`."""
        asked = query_of(query)
        return self.prompt_with(asked, self.select(asked))

    def prompt_with(self, query: Query, shots: Sequence[Selected]) -> Prompt:
        """As `prompt`, with these demonstrations."""
        from ..llm.asking import prompt_for

        prompt, _ = prompt_for(query, [shot.demonstration for shot in shots], self.task, self.settings)
        if self.lacks_system(prompt):
            raise UsageError(
                "the query has no field 'system', the system prompt that all judged queries came with",
                RECORD.format("system"),
            )
        return prompt

    def lacks_system(self, prompt: Prompt) -> bool:
        """Whether a system prompt is missing in the prompt: all judged queries came with one, which the template shows,
        and this query without."""
        from ..llm.asking import prompt_for

        query, judged = prompt.query, self.view.judged_system
        if not judged or system_prompt(query):
            return False
        as_judged = replace(query, history=(Message("system", judged), *(query.history or ())))
        best_first = prompt.demonstrations if self.settings.order == "best-first" else prompt.demonstrations[::-1]
        return prompt_for(as_judged, best_first, self.task, self.settings)[0].messages != prompt.messages

    async def aselect(self, query: Asked) -> list[Selected]:
        """`select` in a thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.select, query)

    async def aselect_many(self, queries: Sequence[Asked], seed: int | None = None) -> list[list[Selected]]:
        """`select_many` in a thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.select_many, queries, seed)

    def add(self, input: str, output: str, source: str = "added", *, new_label: bool = False, **fields: Any) -> None:
        """Add a demonstration to the workspace; it can be selected at once. ``fields``: ``options``, ``context``,
        ``id`` and others, as `index` reads them. Raises `UsageError` for a row that `index` would skip, and in a pool
        of labels, all of which stand in each prompt, for one that no row has, unless it is a ``new_label``.

        It is indexed like any other row, from the file ``added.jsonl`` in the workspace.
        """
        from ..index.build import add_demonstration  # a service that only selects loads nothing of the index

        record = {"input": input, "output": output, "source": source, **fields}
        add_demonstration(self.workspace, self.settings, record, new_label)
        self.refresh()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.workspace.path, self.settings)

    def picks(self, queries: Sequence[Query], seed: int | None = None) -> list[list[Pick]]:
        """As `select_many`, but row numbers and scores only."""
        return self.method.choose(self.view, queries, self.settings.k, self.settings.seed if seed is None else seed)

    def resolve(self, picks: Sequence[Sequence[Pick]]) -> list[list[Selected]]:
        """The demonstrations behind picks."""
        shown = self.view.demonstrations([[pick.row for pick in chosen] for chosen in picks])
        return [
            [Selected(shot, pick.score, pick.parts, pick.adds) for shot, pick in zip(shots, chosen, strict=True)]
            for shots, chosen in zip(shown, picks, strict=True)
        ]

    def refresh(self) -> None:
        """Read the pool again: after an index run or a decision."""
        self.view = self.view.renewed()


WordParts = tuple[tuple[str, float], ...]
"""What each word of the query adds to a demonstration's BM25, largest first."""


def words_of(selector: Selector, query: Query, shots: Sequence[Selected]) -> tuple[WordParts, ...]:
    """For each shot; empty for a method without BM25."""
    if not shots or "bm25" not in shots[0].parts:
        return ()
    view = selector.view
    rows = [shot.demonstration.row for shot in shots]
    return tuple(map(tuple, view.lexical.words(view.searched(query), rows)))


def needs_of(selector: Selector, query: Query) -> tuple[Need, ...]:
    """The topics that the query requires most; empty for a method without topics."""
    needs = selector.method.needs
    return tuple(needs(selector.view, query)) if needs else ()


def short_of(selector: Selector, shots: Sequence[Selected]) -> tuple[str, ...]:
    """A note if the pool has fewer demonstrations than were asked for."""
    if len(shots) < selector.settings.k and selector.settings.method != "zero":
        return (f"only {len(shots)} of {selector.settings.k} demonstrations: the active pool has no more",)
    return ()


def besides(shown: Demonstration) -> dict[str, Any]:
    """What a demonstration has besides its input and output: ``options``, ``context`` and ``history``, the messages
    before its input; those that it has."""
    history = [{"role": turn.role, "content": turn.content} for turn in shown.history or ()]
    found = {"options": list(shown.options), "context": shown.context, "history": history}
    return {name: value for name, value in found.items() if value}


def shots_as_json(shots: Sequence[Selected], words: Sequence[WordParts]) -> list[dict[str, Any]]:
    """``demonstrations`` of ``preview --json`` and of the selection service; ``words`` is empty or one for each."""
    return [
        {
            "id": shot.demonstration.id,
            "source": shot.demonstration.source,
            "input": shot.demonstration.input,
            "output": shot.demonstration.output,
            **besides(shot.demonstration),
            "score": shot.score,
            "parts": dict(shot.parts),
            **({"adds": [{"topic": t, "gain": g} for t, g in shot.adds]} if shot.adds else {}),
            **({"words": [{"word": w, "adds": a} for w, a in added]} if added else {}),
        }
        for shot, added in zip(shots, words or [()] * len(shots), strict=True)
    ]
