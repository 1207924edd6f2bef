"""One query looked at closely: its demonstrations, their scores taken apart, the prompt, and the LLM's answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import LLMError, UsageError
from ..index.artefacts import encode_for_reader
from ..llm import runner
from ..llm.asking import backend_for, llm_settings, prompt_for, request_for, room_for
from ..llm.types import Answer, Failure
from ..pool.prompts import Prompt
from ..pool.records import Query
from ..progress import CancelToken, Report, silent
from ..settings import Settings
from ..store.workspace import Workspace
from ..topics.selection import Need
from ..topics.selection import needs as topics_needed
from .selector import Selected, Selector


@dataclass(frozen=True, slots=True)
class Preview:
    """What a query gets; ``notes`` are said aloud (a short pool, shots that did not fit), ``needs`` are the topics it
    requires most (``topick`` alone)."""

    query: Query
    method: str
    shots: tuple[Selected, ...]
    prompt: Prompt
    notes: tuple[str, ...] = ()
    llm: str = ""
    answer: Answer | None = None
    needs: tuple[Need, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The ``preview --json`` contract; ``answer`` and ``uncertainty`` where the LLM was asked."""
        found: dict[str, Any] = {
            "query": self.query.input,
            "method": self.method,
            "demonstrations": [
                {
                    "id": shot.demonstration.id,
                    "source": shot.demonstration.source,
                    "input": shot.demonstration.input,
                    "output": shot.demonstration.output,
                    "score": shot.score,
                    "parts": dict(shot.parts),
                    **({"adds": [{"topic": t, "gain": g} for t, g in shot.adds]} if shot.adds else {}),
                }
                for shot in self.shots
            ],
            "prompt": [asdict(message) for message in self.prompt.messages],
            "notes": list(self.notes),
        }
        if self.needs:
            found["needs"] = [asdict(need) for need in self.needs]
        if self.answer is not None:
            found |= {
                "llm": self.llm,
                "answer": self.answer.text,
                "uncertainty": self.answer.uncertainty,
                "cached": self.answer.cached,
                "tokens_in": self.answer.tokens_in,
                "tokens_out": self.answer.tokens_out,
            }
        return found


def preview(
    workspace: Workspace,
    query: Query,
    settings: Settings,
    *,
    answer: bool = False,
    selector: Selector | None = None,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Preview:
    """Select for one query with ``settings.method``, and ask ``settings.llm`` when ``answer`` is set.

    A warm process passes its own ``selector``. Raises `UsageError` for an empty query, `LLMError` when the LLM
    gives no answer.
    """
    if not query.input.strip():
        raise UsageError("the query is empty", 'icl-curate preview "a question"')
    selector = selector or Selector(workspace, settings=settings, report=report, cancel=cancel)
    shots = selector.select(query)
    demonstrations = [shot.demonstration for shot in shots]
    notes = []
    if len(shots) < selector.settings.k and selector.settings.method != "zero":
        notes.append(f"only {len(shots)} of {selector.settings.k} demonstrations: the active pool has no more")
    needs = tuple(topics_needed(selector.view, query)) if selector.settings.method == "topick" else ()
    if not answer:
        prompt, _ = prompt_for(query, demonstrations, selector.task, settings)
        return Preview(query, selector.settings.method, tuple(shots), prompt, tuple(notes), needs=needs)
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        capabilities = runner.probe(workspace, backend)
        room = room_for(settings, capabilities)
        prompt, dropped = prompt_for(query, demonstrations, selector.task, settings, backend, room)
        if dropped:
            notes.append(f"{dropped} of the weakest demonstrations did not fit into {room} tokens")
        request = request_for(prompt, settings, capabilities)
        result = runner.ask(workspace, backend, [request], llm_settings(settings), report=report, cancel=cancel)[0]
    if isinstance(result, Failure):
        raise LLMError(f"{settings.llm} gave no answer: {result.message}", f"icl-curate llm check --llm {settings.llm}")
    return Preview(query, selector.settings.method, tuple(shots), prompt, tuple(notes), settings.llm, result, needs)
