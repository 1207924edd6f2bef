"""From settings to a backend and from a query to a request, for all parts that call an LLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..base.code import program_in
from ..base.errors import UsageError
from ..base.progress import SILENT, Event, Monitor
from ..grading.metrics import JUDGES
from ..grading.readers import reader_named
from ..http import trust
from ..pool.display import display_line
from ..pool.fields import check_reads
from ..pool.prompts import Prompt
from ..pool.records import Demonstration, Query, Task
from ..prompting.template import build_prompt, fit_prompt
from ..retrieval.artefacts import readers_encoder
from ..store.demonstrations import active_rows, fetch, queries, task_of
from ..store.settings import Settings, knobs
from ..store.workspace import Workspace
from . import loop
from .budget import FREE, Price
from .cost import PROGRAM, DryRun, Plan
from .graded import graded_by
from .runner import TASK
from .spec import BACKENDS, is_stand_in, open_backend, parse
from .types import Backend, Capabilities, Encode, LLMSettings, Request, Sampling

FORMLESS: Mapping[str, Any] = {"stop": (), "response_format": ""}
"""Settings of prompts that are not the task's own: those of a judge, for example."""
REQUEST = (
    "endpoint", "system_role", "temperature", "top_p", "stop", "response_format", "reasoning_effort", "extra_body",
    "headers", "query_params",
)  # fmt: skip
"""Settings of what is in each request besides messages and the length of answers."""
SERVED = ("response_format", "reasoning_effort", "extra_body")
"""Settings that change what a server answers, and that local models do not have."""


def opened(settings: Settings, encode: Encode) -> Backend:
    """The backend that ``settings.llm`` names; ``encode`` is for the built-in reader. All LLM calls go through it.

    Raises `UsageError` for an invalid spec, `UnconfirmedServer` for a server that only the workspace's own file names.
    """
    check_server(settings)
    return open_backend(settings.llm, llm_settings(settings), encode, readers_encoder(settings))


def check_server(settings: Settings) -> None:
    """Raise `UnconfirmedServer` if prompts would go to a server that the user neither named nor confirmed."""
    if settings.base_url_by and BACKENDS[parse(settings.llm).kind].at_base_url:
        trust.require(settings.base_url, settings.base_url_by, keyed=bool(settings.headers))


OTHERS = 100
"""Queries whose prompts are compared."""


def check_prompts(workspace: Workspace, settings: Settings) -> str:
    """What the settings' template shows nothing of, demonstrations or the query's input, as a note; empty if it shows
    both. Raises `UsageError` if it cannot be judged on the validation and test queries: it reads a field that they lack
    or that tells the answer (`check_reads`), or it writes the same for `OTHERS` of them, of the pool if there are
    none."""
    if not settings.templated:
        return ""
    required, optional = settings.reads, settings.reads_if_there
    most = None if required | optional else OTHERS
    asked = [*queries(workspace, "validation", most), *queries(workspace, "test", most)]
    check_reads(required, asked, optional)
    pool = active_rows(workspace)
    asked = asked[:OTHERS] or [row.as_query() for row in fetch(workspace, pool[:OTHERS])]
    if not asked:
        return ""
    template, task, shots = settings.prompt_template, task_of(workspace), fetch(workspace, pool[: settings.k])
    other = replace(asked[0], input=f"?{asked[0].input}?")  # of which a template may write the beginning alone
    try:
        first = template.render(asked[0], shots, task)
        alike = all(template.render(query, shots, task) == first for query in [other, *asked[1:]])
        hidden = ["demonstrations"] if shots and template.render(asked[0], [], task) == first else []
        hidden += ["the query's input"] if template.render(other, shots, task) == first else []
    except UsageError:  # told where it is asked, if that row is
        return ""
    if alike and not required and len({query.input for query in asked}) > 1:
        raise UsageError(
            f"{settings.template} writes the same prompt for every query: it shows nothing of it",
            "write {{ query.input }} where the question goes",
        )
    return f"{settings.template} does not show {' or '.join(hidden)}" if hidden else ""


@contextmanager
def backend_for(settings: Settings, encode: Encode, monitor: Monitor = SILENT) -> Iterator[Backend]:
    """As `opened`, closed at the end of the block; reports where prompts go before any is sent."""
    backend = opened(settings, encode)
    if where := destination(settings):
        monitor.report(Event(TASK, note=f"prompts go to {where}"))
        if settings.answers == "score":
            told = "a server scores options after plain text: its chat template is not applied"
            monitor.report(Event(TASK, note=told))
        if settings.told_by:
            monitor.report(Event(TASK, note=f"the workspace's own config.toml says {display_line(settings.told_by)}"))
    elif unused := [name for name in SERVED if getattr(settings, name)]:
        monitor.report(Event(TASK, note=f"{', '.join(unused)} not used: {settings.llm} is no server"))
    try:
        yield backend
    finally:
        loop.close(backend)


def judges(settings: Settings) -> Settings | None:
    """The settings of another LLM that judges the answers of this one; None without one."""
    if settings.metric not in JUDGES or not settings.judge_llm:
        return None
    other = another(settings, settings.judge_llm, settings.judge_price_in, settings.judge_price_out)
    return replace(other, metric="auto")


def another(settings: Settings, llm: str, price_in: float | None, price_out: float | None) -> Settings:
    """The settings of a second LLM. What is set for the first model (endpoint, role, reasoning) is not meant for it,
    what is set for the server is, if it is the same one or the first has none."""
    elsewhere = _served_by(settings.llm) not in ("", _served_by(llm))
    return replace(
        settings, llm=llm, price_in=price_in, price_out=price_out, prices_by="", endpoint="auto", system_role="system",
        reasoning_effort="", extra_body="" if elsewhere else settings.extra_body,
    )  # fmt: skip


def _served_by(llm: str) -> str:
    """The kind of server that an LLM is asked at; empty for one on this machine, a program, and one of Python's own."""
    kind = llm.partition(":")[0].strip().lower()
    return kind if kind in BACKENDS and not BACKENDS[kind].local and not program_in(llm) else ""


def destination(settings: Settings) -> str:
    """The model and server that prompts are sent to, as text; empty if they stay on this machine."""
    chosen = parse(settings.llm)
    if chosen.local:
        return ""
    if program_in(settings.llm):
        return f"{PROGRAM} {chosen.name}, which says what it has sent when it is done"
    server = open_backend(settings.llm, llm_settings(settings)).identity()["base_url"]
    return f"{chosen.name} at {server}"


def foreseen(plan: Plan, workspace: Workspace, settings: Settings) -> DryRun:
    """What would be asked by the ``plan``, of whom, and by what it would be graded."""
    return DryRun(plan, destination(settings), graded_by(workspace, settings), is_stand_in(settings.llm) or None)


def llm_settings(settings: Settings) -> LLMSettings:
    """The part of the settings about access to the LLM."""
    return LLMSettings(
        base_url=settings.base_url or None,
        device=settings.device,
        dtype=settings.dtype,
        timeout=settings.timeout,
        concurrency=settings.concurrency,
        attempts=settings.attempts,
        endpoint=settings.endpoint,
        system_role=settings.system_role,
        reasoning_effort=settings.reasoning_effort,
        extra_body=settings.extra_body,
        headers=settings.headers,
        query_params=settings.query_params,
    )


def requested(settings: Settings) -> dict[str, Any]:
    """What was set of `REQUEST`, to be stored."""
    usual, shown = knobs(Settings()), knobs(settings)
    return {name: shown[name] for name in REQUEST if shown[name] != usual[name]}


def price_of(settings: Settings) -> Price | None:
    """The price of the configured LLM, None if it is not known; a local model is free."""
    return FREE if parse(settings.llm).local else price_set(settings)


def price_set(settings: Settings) -> Price | None:
    """The price per million tokens set by the user, None if not set, or by the workspace's own file alone; a program
    has one anyway."""
    billed = program_in(settings.llm) != ""
    if settings.price_in is None or settings.price_out is None or settings.prices_by:
        return Price(0.0, 0.0, billed) if billed else None
    return Price(settings.price_in, settings.price_out, billed)


def prompt_budget(settings: Settings, capabilities: Capabilities) -> int | None:
    """Maximum tokens of a prompt that leave room for an answer; None if the LLM's limit is not known."""
    limit = settings.context_tokens or capabilities.context_tokens
    return limit - settings.answer_tokens if limit else None


def request_for(prompt: Prompt, settings: Settings, capabilities: Capabilities) -> Request:
    """The request for a prompt: its choices are scored if the LLM can and the setting allows it, else the answer is
    generated."""
    score = bool(prompt.choices) and scores(settings, capabilities)
    if settings.answers == "score" and prompt.choices and not score:
        raise UsageError("this LLM cannot score given options", "--answers generate, or --llm hf:PATH")
    sampling = sampling_of(settings)
    if prompt.stop:
        sampling = replace(sampling, stop=(*prompt.stop, *sampling.stop), fixed=sampling.fixed | {"stop"})
    return Request(prompt, score and not prompt.reasons, sampling)


def scores(settings: Settings, capabilities: Capabilities) -> bool:
    """Whether choices are scored: where the setting says so, or leaves it open and the prompt that is served is."""
    able = {"score": capabilities.scoring, "auto": capabilities.scores_served, "generate": False}[settings.answers]
    return able and not (settings.endpoint == "chat" and _served_by(settings.llm))


def sampling_of(settings: Settings) -> Sampling:
    """How answers to prompts about the task are sampled."""
    fields = ("max_tokens", "temperature", "top_p", "stop", "response_format")
    return Sampling(
        max_tokens=settings.answer_tokens,
        temperature=settings.temperature or 0.0,
        top_p=1.0 if settings.top_p is None else settings.top_p,
        seed=settings.seed,
        stop=settings.stop,
        response_format=settings.response_format,
        fixed=frozenset(name for name in fields if getattr(settings, name) not in (None, (), "")),
    )


def with_reader(prompt: Prompt, settings: Settings) -> Prompt:
    """The prompt whose reply is read as the settings say."""
    reader = reader_named(settings.read)
    return replace(prompt, template=settings.template, read=reader.name, one_line=prompt.one_line and reader.one_line)


def prompt_for(
    query: Query,
    best_first: Sequence[Demonstration],
    task: Task,
    settings: Settings,
    backend: Backend | None = None,
    limit: int | None = None,
) -> tuple[Prompt, int]:
    """The prompt for a selection, and how many of the lowest-ranked demonstrations did not fit into ``limit``
    tokens. Raises `UsageError` for the settings of a lock that names a program."""
    if settings.own_prompts:
        raise UsageError(
            f"the lock names the program {settings.own_prompts}, which makes its own prompts: none was judged",
            "use Selector.select, or POST /select, and give the program what it returns",
        )

    def build(asked: Query, shown: Sequence[Demonstration]) -> Prompt:
        return with_reader(build_prompt(asked, shown, task, settings.prompt_template, settings.order), settings)

    if limit is None or backend is None:
        return build(query, best_first), 0
    return fit_prompt(query, best_first, build, backend.count_tokens, limit)
