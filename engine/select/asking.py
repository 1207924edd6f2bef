"""Opening the chosen LLM for a workspace: the one place where settings, encoder and backend meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WorkspaceError
from ..index.artefacts import vectors_of
from ..llm import runner
from ..llm.budget import Price
from ..llm.settings import LLMSettings
from ..llm.spec import open_backend
from ..llm.types import Backend, Capabilities, Request, Sampling
from ..pool.prompts import Prompt
from ..search.encoder import Encoder, load_encoder
from ..settings import Settings
from ..store.demonstrations import rows_of_inputs
from ..store.workspace import Workspace

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@contextmanager
def backend_for(workspace: Workspace, settings: Settings) -> Iterator[Backend]:
    """The backend that ``settings.llm`` names, closed at the end of the block.

    The embedded reader gets the workspace's encoder, loaded when it is first needed. Raises `UsageError` for a spec
    that names no backend.
    """
    backend = open_backend(
        settings.llm, llm_settings(settings), encode_for_reader(workspace, settings), settings.encoder
    )
    try:
        yield backend
    finally:
        runner.close(backend)


def llm_settings(settings: Settings) -> LLMSettings:
    """The part of the settings that says how an LLM is reached."""
    return LLMSettings(
        base_url=settings.base_url or None,
        device=settings.device,
        timeout=settings.timeout,
        concurrency=settings.concurrency,
        attempts=settings.attempts,
    )


def price_of(settings: Settings) -> Price | None:
    """What the user said a million tokens cost; None when that is not known. There is no table of vendors' prices."""
    if settings.price_in < 0 or settings.price_out < 0:
        return None
    return Price(settings.price_in, settings.price_out)


def encode_for_reader(workspace: Workspace, settings: Settings) -> Encode:
    """What the embedded reader reads with: the stored vector of a text that is some row's input, else one computed now.

    Computed in float32, so that an answer does not depend on which questions share its batch. The encoder is loaded
    when it is first needed.
    """

    @cache
    def encoder() -> Encoder:
        return load_encoder(settings.encoder, settings.device, full_precision=True)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = rows_of_inputs(workspace, texts)
        try:
            stored = vectors_of(workspace, settings.encoder)
        except WorkspaceError:
            return encoder().encode(texts)
        known = (rows >= 0) & np.isin(rows, stored.missing(rows), invert=True)
        vectors = np.empty((len(texts), stored.dimension), np.float32)
        vectors[known] = stored.matrix[rows[known]]
        fresh = np.flatnonzero(~known).tolist()
        if fresh:
            vectors[fresh] = encoder().encode([texts[i] for i in fresh])
        return vectors

    return encode


def room_for(settings: Settings, capabilities: Capabilities) -> int | None:
    """Tokens a prompt may have so that an answer still fits; None where the LLM's limit is not known."""
    limit = settings.context_tokens or capabilities.context_tokens
    return limit - settings.max_tokens if limit else None


def request_for(prompt: Prompt, settings: Settings, capabilities: Capabilities) -> Request:
    """How a prompt is answered: its choices scored where the LLM can and the setting allows, else generated."""
    if settings.answers == "score" and prompt.choices and not capabilities.scoring:
        raise UsageError("this LLM cannot score given options", "--answers generate, or --llm hf:PATH")
    score = bool(prompt.choices) and capabilities.scoring and settings.answers != "generate"
    sampling = Sampling(max_tokens=settings.max_tokens, temperature=settings.temperature, seed=settings.seed)
    return Request(prompt, score, sampling)
