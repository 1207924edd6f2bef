"""Methods that call the LLM during selection: compared in ``evaluate``, too expensive for a serving process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..base.errors import LLMError, UsageError
from ..llm.probing import UNSEEN, require
from ..llm.types import Capabilities
from ..pool.records import Task
from .listwise import rerank
from .request_stages import MethodContext, RequestStages
from .sure import sure
from .uncertainty import cone, mdl, mdr


@dataclass(frozen=True, slots=True)
class LLMMethod:
    """A method and what it needs: an LLM that follows instructions (``instructs``), an LLM that gives log-probabilities
    of given texts (``scores``), a task with a closed set of answers (``choices``); ``seeded``: it draws at random."""

    request_stages: Callable[[MethodContext, int], RequestStages]
    about: str
    instructs: bool = False
    scores: bool = False
    choices: bool = False
    seeded: bool = False

    def check(self, name: str, task: Task, capabilities: Capabilities, llm: str) -> None:
        """Raises `LLMError` or `UsageError` if something is missing, before the first call; an LLM that was never
        probed passes."""
        if capabilities is not UNSEEN:
            require(capabilities, llm, scoring=self.scores, instructs=self.instructs, purpose=name)
        if self.choices and task.kind == "open":
            raise UsageError(f"{name} needs answer options, but the pool's questions are open", "choose cone or mdr")


LLM_METHODS: Mapping[str, LLMMethod] = {
    "rerank": LLMMethod(rerank, "the LLM orders the best 20 by BM25 (RankGPT)", instructs=True),
    "sure": LLMMethod(sure, "summaries of the evidence for two candidate answers (SuRe)", instructs=True),
    "mdl": LLMMethod(
        mdl, "the set with the lowest entropy of the LLM's answer (MDL)", scores=True, choices=True, seeded=True
    ),
    "mdr": LLMMethod(mdr, "similar ones that the LLM answers well zero-shot (MDR)", scores=True),
    "cone": LLMMethod(cone, "those with the lowest perplexity of the query (ConE)", scores=True, instructs=True),
}


def check_all(methods: Iterable[str], task: Task, capabilities: Capabilities, llm: str) -> None:
    """Raises as `LLMMethod.check` if something is missing for one of the ``methods``; what can run is named."""
    able, lacking = [], []
    for name in methods:
        try:
            if name in LLM_METHODS:
                LLM_METHODS[name].check(name, task, capabilities, llm)
            able.append(name)
        except (LLMError, UsageError) as error:
            lacking.append(error)
    if lacking:
        what = "; ".join(error.what for error in lacking)
        rest = f"-m {','.join(able)}, which can run; or " if able else ""
        raise type(lacking[0])(what, f"{rest}{lacking[0].fix}")
