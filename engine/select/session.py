"""Objects that are slow to open and stay open during a session: the pool's indexes, the encoder, the LLM."""

from __future__ import annotations

import threading
from dataclasses import replace

from ..base.progress import CancelToken, Monitor
from ..llm import loop
from ..llm.asking import check_prompts, opened
from ..llm.client import LLMClient
from ..llm.spec import recorded
from ..llm.types import Backend
from ..retrieval.artefacts import encode_for_reader
from ..retrieval.view import PoolView
from ..store.demonstrations import workspace_fingerprint
from ..store.settings import Settings
from ..store.workspace import Workspace
from .selector import Selector


class SessionCache:
    """Opens each of them on first use, and again if the pool or the settings have changed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[Settings, tuple[object, PoolView]] = {}
        self._backend: tuple[Settings, Backend] | None = None
        self.asked = False
        """Whether the LLM has been called in this session."""

    def may_look(self, settings: Settings) -> bool:
        """Whether earlier answers can be looked up without loading a model."""
        named = recorded(settings.llm)
        return self.asked or named is None or not named.loads_model

    def view(self, workspace: Workspace, settings: Settings) -> PoolView:
        """The current pool; all methods share its indexes."""
        alike = replace(settings, method="", k=0)
        with self._lock:
            now = workspace_fingerprint(workspace)
            then, view = self._views.get(alike, (None, None))
            if view is None or then != now:
                view = view.renewed() if view else PoolView(workspace, settings)
                self._views = {alike: (now, view)}
        return view

    def selector(self, workspace: Workspace, settings: Settings) -> Selector:
        """A selector for ``settings.method`` over the current pool."""
        return Selector(workspace, settings=settings, view=self.view(workspace, settings))

    def client(self, workspace: Workspace, settings: Settings, cancel: CancelToken | None = None) -> LLMClient:
        """A client of the configured LLM; without ``cancel``, which stops the requests, nothing is sent. Raises as
        `check_prompts` does where something may be."""
        if cancel is not None:
            check_prompts(workspace, settings)
        backend = self.backend(workspace, settings)
        return LLMClient(workspace, backend, settings, Monitor(cancel=cancel or CancelToken()), dry_run=cancel is None)

    def backend(self, workspace: Workspace, settings: Settings) -> Backend:
        """The configured LLM; closed at the end of the program, or when another LLM is configured."""
        alike = replace(settings, method="", k=0)
        with self._lock:
            if self._backend is None or self._backend[0] != alike:
                if self._backend is not None:
                    loop.close(self._backend[1])
                    self._backend = None
                self._backend = alike, opened(settings, encode_for_reader(workspace, settings))
            return self._backend[1]
