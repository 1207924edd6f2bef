"""What a template makes of a pool: the prompt of a query, what it reads, and how much of it all queries share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..base.contract import OPTIONAL, Reported
from ..base.errors import UsageError
from ..llm.asking import OTHERS, check_prompts, prompt_for
from ..pool.fields import OPTION, require, value_of
from ..pool.records import Message, Query
from ..prompting.expect import differs, request_in
from ..store.demonstrations import active_rows, fetch, find, judged_system, queries, task_of
from ..store.settings import Settings
from ..store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TemplateCheck(Reported):
    """A template with the ``turns`` of a query. ``reads``: the fields that every query must have, ``system``
    among them where all judged queries came with a system prompt and the template shows it. ``answer``: how an
    output is written, ``stop`` what ends it. ``shared`` of the ``characters`` are the same for every query with the
    same demonstrations, as far as `OTHERS` show: a server or a local model computes them once. ``differs``: the first
    difference from the request that was expected, empty for none, None if none was given. ``note``: what it does not
    show, demonstrations or the query's input; empty if it shows both."""

    kind = "template"
    template: str
    digest: str
    reads: tuple[str, ...]
    answer: str
    stop: tuple[str, ...]
    turns: tuple[Message, ...]
    shared: int
    characters: int
    differs: str | None = field(default=None, metadata=OPTIONAL)
    note: str = ""


def check_template(
    workspace: Workspace,
    settings: Settings,
    asked: Query | None = None,
    shots: Sequence[str] = (),
    expect: Path | None = None,
) -> TemplateCheck:
    """The settings' template with the query ``asked`` (by default the first of validation or test, else of the pool)
    and the demonstrations with these ids, in the order in which they are read (by default the first k of the pool),
    compared with the request in the file ``expect``, if given.

    Raises `UsageError` if the template fails, if it reads a field that the query lacks, or as `check_prompts` does."""
    expected = None if expect is None else request_in(expect)
    template, task = settings.prompt_template, task_of(workspace)
    every = [*queries(workspace, "validation"), *queries(workspace, "test")]
    hidden = check_prompts(workspace, settings)
    shown = [find(workspace, name) for name in shots] or fetch(workspace, active_rows(workspace)[: settings.k])
    if not (every or shown or asked):
        raise UsageError("there is no row to show", "icl-curate index")
    rows = every or [row.as_query() for row in shown or fetch(workspace, active_rows(workspace)[:OTHERS])]
    others = [row for row in rows if all(value_of(row, name) is not None for name in template.reads)][:OTHERS]
    query = asked or (others or rows)[0 if every else -1]
    reads, best_first = template.reads, shown if settings.order == "best-first" else shown[::-1]
    if judged_system(workspace):
        bare = replace(every[0], history=tuple(turn for turn in every[0].history or () if turn.role != "system"))
        same = template.render(bare, shown, task) == template.render(every[0], shown, task)
        reads |= frozenset() if same else {"system"}
    require(query, reads, OPTION)
    prompt, _ = prompt_for(query, best_first, task, settings)
    # one differs from its first character on
    others.append(replace(query, input=("B" if query.input[:1] == "A" else "A") + query.input))
    texts = [prompt.text, *(prompt_for(other, best_first, task, settings)[0].text for other in others)]
    low, high = min(texts), max(texts)  # what these two share, all share
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return TemplateCheck(
        settings.template,
        template.digest,
        tuple(sorted(reads)),
        template.form.write("…"),
        template.stop,
        prompt.messages,
        shared,
        len(prompt.text),
        None if expected is None else differs(expected, prompt.messages) or "",
        hidden,
    )
