"""From what ``--llm`` names, as ``openai:MODEL``, to a backend."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ..base.errors import UsageError
from ..base.registry import Registry
from .types import DEFAULTS, Backend, Encode, LLMSettings


@dataclass(frozen=True, slots=True)
class BackendKind:
    """What answers behind one prefix."""

    open: Callable[[Spec, LLMSettings, Encode | None, str], Backend]
    """As `open_backend`, of a parsed spec and checked settings."""
    named: str = ""
    """What is written after the colon; empty for one LLM without a name."""
    local: bool = True
    """Runs on this machine: a call costs time but no money."""
    at_base_url: bool = False
    """Asks the server of the setting ``base_url``."""
    loads_model: bool = False
    """Loads an LLM's weights into this process, which takes seconds and memory."""
    prepare: Callable[[Spec, LLMSettings], object] = lambda spec, settings: None
    """Imports and loads what the first request needs, in a process that waits for a command; nothing is sent."""
    stand_in: bool = False
    """Not an LLM: its answers show how a method works and say nothing about any LLM."""


BACKENDS: Registry[BackendKind] = Registry("backends")
"""By the prefix of ``--llm``."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec; ``name`` is the model's name or path, empty for kinds without one."""

    kind: str
    name: str = ""

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def local(self) -> bool:
        return BACKENDS[self.kind].local

    @property
    def stand_in(self) -> bool:
        return BACKENDS[self.kind].stand_in

    @property
    def loads_model(self) -> bool:
        return BACKENDS[self.kind].loads_model


def parse(spec: str) -> Spec:
    """Parse a spec; `UsageError` with the most similar valid one, if there is such, if it is invalid."""
    text = spec.strip()
    kind, colon, name = text.partition(":")
    kind, name = kind.strip().lower(), name.strip()
    if kind in BACKENDS and bool(name) == bool(BACKENDS[kind].named):
        return Spec(kind, name)
    if kind in BACKENDS and not name:
        raise UsageError(f"'{spec}' names no model", f"write --llm {_form(kind)}")
    forms, near = ", ".join(map(_form, BACKENDS)), _nearest(text, kind, colon, name)
    raise UsageError(
        f"unknown LLM '{spec}'", f"did you mean --llm {near}? ({forms})" if near else f"write --llm as one of {forms}"
    )


def probe_command(spec: str) -> str:
    """The command that probes an LLM anew, to be pasted: its name may be anybody's."""
    return f"icl-curate llm check --llm {quote(spec)}"


def _form(kind: str) -> str:
    return f"{kind}:{BACKENDS[kind].named}".removesuffix(":")


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
    """The valid spec that is most like this one; empty if none is."""
    aliases = {"huggingface": "hf", "transformers": "hf", "local": "hf", "vllm": "openai", "ollama": "openai"}
    aliases |= {"claude": "anthropic", "google": "gemini"}
    guess = aliases.get(kind) or next(iter(difflib.get_close_matches(kind, list(BACKENDS), n=1, cutoff=0.6)), "")
    if not text or (guess and not BACKENDS[guess].named):
        return guess or "offline"
    if colon and guess:
        return f"{guess}:{name or 'MODEL'}"
    if not colon and guess:
        return f"{guess}:MODEL"
    looks_local = Path(text).expanduser().exists() or "/" in text
    if colon and not looks_local:  # what stands before it may mean anything
        return ""
    return f"{'hf' if looks_local else 'openai'}:{text}"


def open_backend(
    spec: str, settings: LLMSettings = DEFAULTS, encode: Encode | None = None, encoder_name: str = ""
) -> Backend:
    """The backend behind ``spec``. Nothing is loaded or sent yet: models load and connections open on first use.

    ``encode`` (texts to an array of shape (n, dim), rows of unit length) is the encoder of ``offline`` and
    ``encoder_name`` its name; the other backends do not use them. Raises `UsageError` for an invalid spec.
    """
    chosen = parse(spec)
    return BACKENDS[chosen.kind].open(chosen, settings, encode, encoder_name)
