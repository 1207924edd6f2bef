"""The backends by the prefix of ``--llm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import UsageError
from ..base.packages import require

if TYPE_CHECKING:
    from ..base.registry import Registry
    from ..llm.spec import BackendKind, Spec
    from ..llm.types import Backend, Encode, LLMSettings


def backends(registry: Registry[BackendKind]) -> None:
    from ..http.address import VENDORS
    from ..llm.spec import BackendKind

    registry.add("offline", BackendKind(_offline, stand_in=True))
    for vendor in VENDORS:
        at_base_url = vendor == "openai"
        kind = BackendKind(_served, named="MODEL", local=False, at_base_url=at_base_url, prepare=_client)
        registry.add(vendor, kind)
    registry.add("hf", BackendKind(_hf, named="PATH", loads_model=True, prepare=_weights))
    registry.add("smollm2", BackendKind(_hf, loads_model=True, prepare=_weights))
    registry.add("replay", BackendKind(_replay, named="FILE"))
    registry.add("program", BackendKind(_program, named="MODULE:OBJECT", local=False))


def _offline(spec: Spec, settings: LLMSettings, encode: Encode | None, encoder_name: str) -> Backend:
    if encode is None:
        raise UsageError("the offline reader needs an encoder", "icl-curate index POOL.jsonl")
    from .offline.reader import OfflineReader

    return OfflineReader(encode, encoder_name)


def _served(spec: Spec, settings: LLMSettings, encode: Encode | None, encoder_name: str) -> Backend:
    from .openai.server import OpenAIServer

    return OpenAIServer(spec.name, settings, spec.kind)


def _client(spec: Spec, settings: LLMSettings) -> None:
    from ..http import client  # noqa: F401


def _hf(spec: Spec, settings: LLMSettings, encode: Encode | None, encoder_name: str) -> Backend:
    require(f"--llm {spec.text}", "torch", "transformers")
    from .hf.gguf import model_of
    from .hf.model import LocalModel

    name, known_as = model_of(spec)
    return LocalModel(name, settings, known_as)


def _weights(spec: Spec, settings: LLMSettings) -> None:
    from .hf.gguf import model_of
    from .hf.loading import preload

    preload(model_of(spec)[0], settings.dtype, settings.device)


def _replay(spec: Spec, settings: LLMSettings, encode: Encode | None, encoder_name: str) -> Backend:
    from .recorded import RecordedLLM

    return RecordedLLM(spec.name)


def _program(spec: Spec, settings: LLMSettings, encode: Encode | None, encoder_name: str) -> Backend:
    from .program import Program

    return Program(spec.name, settings)
