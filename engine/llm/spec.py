"""From ``offline``, ``openai:MODEL``, ``hf:NAME_OR_PATH`` and ``smollm2`` to a backend."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from ..base.errors import UsageError
from ..base.packages import require
from .settings import DEFAULTS, DTYPES, ENDPOINTS, LLMSettings
from .types import Backend, Encode

Kind = Literal["offline", "openai", "hf", "smollm2", "replay"]
KINDS: tuple[Kind, ...] = ("offline", "openai", "hf", "smollm2", "replay")
FORMS = "offline, openai:MODEL, hf:NAME_OR_PATH, smollm2 or replay:FILE"
NAMELESS: tuple[Kind, ...] = ("offline", "smollm2")
"""Kinds without a model name: one LLM each."""
_NAMES = {"openai": "MODEL", "hf": "PATH", "replay": "FILE"}


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec; ``name`` is the model's name or path, empty for the kinds in `NAMELESS`."""

    kind: Kind
    name: str = ""

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def local(self) -> bool:
        """Runs on this machine: a call costs time but no money."""
        return self.kind != "openai"

    @property
    def stand_in(self) -> bool:
        """Not an LLM: its answers show how a method works and say nothing about any LLM."""
        return self.kind == "offline"

    @property
    def loads_model(self) -> bool:
        """Loads an LLM's weights into this process, which takes seconds and memory."""
        return self.kind in ("hf", "smollm2")


def parse(spec: str) -> Spec:
    """Parse a spec; `UsageError` with the most similar valid one if it is invalid."""
    text = spec.strip()
    kind, colon, name = text.partition(":")
    kind, name = kind.strip().lower(), name.strip()
    if kind in NAMELESS and not name:
        return Spec(kind)
    if kind in _NAMES:
        if not name:
            raise UsageError(f"'{spec}' names no model", f"write --llm {kind}:{_NAMES[kind]}")
        return Spec(cast(Kind, kind), name)
    raise UsageError(f"unknown LLM '{spec}'", f"did you mean --llm {_nearest(text, kind, colon, name)}? ({FORMS})")


def recorded(spec: str) -> Spec | None:
    """The spec named by a setting or a run; None if it is not valid."""
    try:
        return parse(spec)
    except UsageError:
        return None


def is_stand_in(spec: str) -> bool:
    """Whether a setting or a run names a stand-in instead of an LLM."""
    named = recorded(spec)
    return named is not None and named.stand_in


def _nearest(text: str, kind: str, colon: str, name: str) -> str:
    aliases = {"huggingface": "hf", "transformers": "hf", "local": "hf", "vllm": "openai", "ollama": "openai"}
    guess = aliases.get(kind) or next(iter(difflib.get_close_matches(kind, KINDS, n=1, cutoff=0.6)), "")
    if guess in NAMELESS or not text:
        return guess or "offline"
    if colon and guess:
        return f"{guess}:{name or 'MODEL'}"
    if not colon and guess:
        return f"{guess}:MODEL"
    looks_local = Path(text).expanduser().exists() or "/" in text
    return f"{'hf' if looks_local else 'openai'}:{text}"


def open_backend(
    spec: str, settings: LLMSettings = DEFAULTS, encode: Encode | None = None, encoder_name: str = ""
) -> Backend:
    """The backend behind ``spec``. Nothing is loaded or sent yet: models load and connections open on first use.

    ``encode`` (texts to an array of shape (n, dim), rows of unit length) is the encoder of ``offline`` and
    ``encoder_name`` its name; the other backends do not use them. Raises `UsageError` for an invalid spec or setting.
    """
    chosen = parse(spec)
    _check(settings)
    if chosen.kind == "openai":
        from .openai_server import OpenAIServer

        return OpenAIServer(chosen.name, settings)
    if chosen.loads_model:
        require(f"--llm {chosen.text}", "torch", "transformers")
        from .hf.model import LocalModel

        name, known_as = model_of(spec)
        return LocalModel(name, settings, known_as)
    if chosen.kind == "replay":
        from .recorded import RecordedLLM

        return RecordedLLM(chosen.name)
    if encode is None:
        raise UsageError("the offline reader needs an encoder", "icl-curate index POOL.jsonl")
    from .offline.reader import OfflineReader

    return OfflineReader(encode, encoder_name)


def model_of(spec: str) -> tuple[str, str]:
    """What the weights of a local LLM are loaded from, and its fixed name if its path differs between machines (else
    empty)."""
    chosen = parse(spec)
    if chosen.kind == "smollm2":
        from .hf import smollm2

        return smollm2.weights(), smollm2.NAME
    return chosen.name, ""


def _check(settings: LLMSettings) -> None:
    if settings.endpoint not in ENDPOINTS:
        raise UsageError(f"unknown endpoint '{settings.endpoint}'", f"use one of {', '.join(ENDPOINTS)}")
    if settings.dtype not in DTYPES:
        raise UsageError(f"unknown dtype '{settings.dtype}'", f"use one of {', '.join(DTYPES)}")
    for name in ("concurrency", "attempts", "batch_size"):
        if getattr(settings, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} must be at least 1", f"give a larger {name.replace('_', '-')}")
    if settings.timeout <= 0:
        raise UsageError("the timeout must be above 0 seconds", "give a larger timeout")
