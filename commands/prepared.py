"""What a process that waits for a command does meanwhile (`engine.jobs.standby`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

OURS = (
    "..engine.evaluate.compare", "..engine.curate.curation", "..engine.trials.sources", "..engine.index.build",
    "..render.curate",
)  # fmt: skip
"""Modules that most commands import."""

OTHERS = "torch", "sklearn.linear_model", "cleanlab.filter"
"""Packages that some commands import, which takes long."""


def steps() -> Iterator[None]:
    """Import what commands import, and what the LLM of the settings needs; its weights, too, if they are loaded into
    the process. Nothing is sent, and the workspace's database is left alone. A failure is for the command to meet."""
    for part in (*OURS, _encoder, _llm, *OTHERS):
        with suppress(Exception):
            if callable(part):
                part()
            else:
                import_module(part, __package__)
        yield


def _encoder() -> None:
    from ..engine.retrieval.encoder import load_encoder

    load_encoder()


def _llm() -> None:
    from ..engine.llm.asking import llm_settings
    from ..engine.llm.spec import BACKENDS, parse
    from ..engine.store.settings import resolve

    settings = resolve(Path(os.environ["ICL_CURATE_WORKSPACE"]), {}).settings
    spec = parse(settings.llm)
    BACKENDS[spec.kind].prepare(spec, llm_settings(settings))
