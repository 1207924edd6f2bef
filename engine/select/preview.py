"""One query in detail: its demonstrations, the parts of their scores, the prompt, and the LLM's answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.contract import Reported
from ..base.errors import LLMError, UsageError
from ..base.progress import SILENT, Monitor
from ..llm.asking import prompt_for
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.probing import UNSEEN
from ..llm.spec import probe_command
from ..llm.types import Answer, Outgoing, Renders, Sends
from ..pool.prompts import Prompt
from ..pool.records import Message, Query
from ..store.demonstrations import task_of
from ..store.settings import Settings
from ..store.workspace import Workspace
from .methods import Need
from .selector import Selected, Selector, WordParts, needs_of, short_of, shots_as_json, words_of
from .stability import QueryShots, Stability, StabilityCheck


@dataclass(frozen=True, slots=True)
class Preview(Reported):
    """The selection of a query. ``notes`` are messages to the user (a short pool, shots that did not fit); ``needs``
    the topics it requires most (``topick`` only); ``words``, for each shot, what each query word adds to its BM25.
    ``answer`` or ``stability`` are set if the LLM was asked."""

    kind = "preview"
    query: Query
    method: str
    shots: tuple[Selected, ...]
    prompt: Prompt
    notes: tuple[str, ...] = ()
    llm: str = ""
    answer: Answer | None = None
    needs: tuple[Need, ...] = ()
    words: tuple[WordParts, ...] = ()
    stability: Stability | None = None

    def as_json(self) -> dict[str, Any]:
        """The ``preview --json`` contract; with ``answer`` or ``stability`` if the LLM was asked."""
        told: dict[str, Any] = {
            "kind": self.kind,
            "query": self.query.input,
            "method": self.method,
            "demonstrations": shots_as_json(self.shots, self.words),
            "prompt": [asdict(message) for message in self.prompt.messages],
            "notes": list(self.notes),
        }
        if self.needs:
            told["needs"] = [asdict(need) for need in self.needs]
        if self.answer is not None:
            told |= {
                "llm": self.llm,
                "answer": self.answer.text,
                "reply": self.answer.reply,
                "how": self.answer.how,
                "uncertainty": self.answer.uncertainty,
                "cached": self.answer.cached,
                "tokens_in": self.answer.tokens_in,
                "tokens_out": self.answer.tokens_out,
            }
        if self.stability is not None:
            told |= {"llm": self.llm, "stability": self.stability.as_json()}
        return told


def preview(
    workspace: Workspace,
    query: Query,
    settings: Settings,
    *,
    selector: Selector | None = None,
    monitor: Monitor = SILENT,
) -> Preview:
    """Select for one query with ``settings.method``; calls no LLM, see `PreviewWithAnswer`.

    A long-running process passes its own ``selector``. Raises `UsageError` for an empty query.
    """
    if not query.input.strip():
        raise UsageError("the query is empty", 'icl-curate preview "a question"')
    selector = selector or Selector(workspace, settings=settings, monitor=monitor)
    shots = selector.select(query)
    demonstrations = [shot.demonstration for shot in shots]
    words = words_of(selector, query, shots)
    prompt, _ = prompt_for(query, demonstrations, selector.task, settings)
    notes = short_of(selector, shots)
    if selector.lacks_system(prompt):
        notes += ("the judged queries came with a system prompt, this one has none: --field system=…",)
    return Preview(
        query, selector.settings.method, tuple(shots), prompt, notes, needs=needs_of(selector, query), words=words
    )


@dataclass(frozen=True, slots=True)
class RequestPreview(Reported):
    """What would be sent for a query: the ``requests`` of an LLM behind a server, several where it scores one option in
    each; for others the ``text`` that the model reads, and the ``choices`` that are scored after it, if they are."""

    kind = "request"
    llm: str
    requests: tuple[Outgoing, ...]
    messages: tuple[Message, ...]
    text: str
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, llm: LLMClient, query: Query) -> RequestPreview:
        """For what `preview` selects, of a client that sends nothing. Raises as `preview` and `StabilityCheck.prepare`
        do."""
        seen = preview(llm.workspace, query, llm.settings, monitor=llm.monitor)
        shown = QueryShots(query, tuple(shot.demonstration for shot in seen.shots))
        check = StabilityCheck.prepare(llm, task_of(llm.workspace), [shown], variants=False)
        (request,) = check.requests
        backend, notes = llm.backend, (*seen.notes, *check.notes)
        prompt, choices = request.prompt, request.prompt.choices if request.score else ()
        if not isinstance(backend, Sends):
            text = backend.rendered(prompt) if isinstance(backend, Renders) else prompt.text
            return cls(llm.name, (), prompt.messages, text, choices, notes)
        if llm.capabilities is UNSEEN:
            notes += (f"not probed yet: fields of ours may be left out then ({probe_command(llm.name)})",)
        return cls(llm.name, tuple(backend.outgoing(request)), prompt.messages, "", choices, notes)

    def as_json(self) -> dict[str, Any]:
        """The ``preview --request --json`` contract; of headers only the names."""
        told: dict[str, Any] = {"kind": self.kind, "llm": self.llm, "notes": list(self.notes)}
        if self.requests:
            sent = [{"url": one.url, "headers": list(one.headers), "body": one.body} for one in self.requests]
            return told | {"requests": sent}
        prompt = [asdict(message) for message in self.messages]
        return told | {"prompt": prompt, "text": self.text, "choices": list(self.choices)}


@dataclass(frozen=True)
class PreviewWithAnswer:
    """``preview --answer``, or with ``stability`` ``preview --stability``, prepared: ``seen`` is the selection for the
    query."""

    seen: Preview
    check: StabilityCheck
    stability: bool

    @classmethod
    def prepare(cls, llm: LLMClient, query: Query, *, stability: bool = False) -> PreviewWithAnswer:
        """Raises as `preview` does; nothing is sent, in a dry run not even a probe."""
        seen = preview(llm.workspace, query, llm.settings, monitor=llm.monitor)
        shown = QueryShots(query, tuple(shot.demonstration for shot in seen.shots))
        return cls(seen, StabilityCheck.prepare(llm, task_of(llm.workspace), [shown], variants=stability), stability)

    def cost(self) -> Plan:
        """What is left to ask."""
        return self.check.cost()

    def ask(self, budget: Budget) -> Preview:
        """Ask the LLM; returns the selection with the answer or the stability. Raises as `runner.ask` does, and
        `LLMError` if the LLM gives no answer."""
        llm = self.check.llm.name
        [stability] = self.check.ask(budget)
        if self.stability:
            return replace(self.seen, llm=llm, stability=stability)
        answered, notes = stability.whole, self.seen.notes
        if answered.answer is None:
            raise LLMError(f"{llm} gave no answer: {answered.failure}", probe_command(llm))
        notes += self.check.notes
        return replace(self.seen, prompt=answered.prompt, notes=notes, llm=llm, answer=answered.answer)
