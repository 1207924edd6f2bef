"""What LLMs of the tests' own share: they are asked in this process, and say what `_answer` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from icl_curate.engine.llm.types import Capabilities, Request, Result
from icl_curate.engine.pool.prompts import Prompt


class OwnBackend:
    """A server that generates and is asked up to 64 prompts at a time; it has a token for each word."""

    spec, local, max_in_flight, batch_size = "scripted", False, 64, 1
    capabilities = Capabilities(logprobs=False, scoring=False)

    def identity(self) -> Mapping[str, Any]:
        return {"spec": self.spec}

    def count_tokens(self, prompt: Prompt) -> int:
        return len(prompt.text.split())

    async def probe(self) -> Capabilities:
        return self.capabilities

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Result:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is held."""
