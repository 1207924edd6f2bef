"""``replay:FILE``: recorded answers of an LLM; nothing is sent and no model is loaded.

A recording is one Parquet file: every answer under the key of its call (`cache.call_key`), and in the file's metadata
the LLM's name, identity and capabilities. The file is enough to repeat an evaluation without the LLM. A request that is
not in it fails as ``missing``: a replay never guesses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

import duckdb

from ..base.errors import LLMError
from ..base.files import replace_file
from ..llm import cache
from ..llm.types import Backend, Capabilities, Failure, Request, Result
from ..pool.prompts import Prompt
from ..store import calls
from ..store.targets import check_file, check_no_input
from ..store.workspace import Workspace


def check_target(workspace: Workspace, path: Path, force: bool) -> None:
    """Raise `UsageError` for a file that must not be overwritten, see `check_file`."""
    check_no_input(workspace, path)
    check_file(path, force)


def record(workspace: Workspace, backend: Backend, path: Path, force: bool = False) -> int:
    """Write the workspace's answers of an LLM to ``path``; returns their number. Raises as `check_target` does.

    Log-probabilities are stored exactly, because scores in later prompts depend on them. Latencies and numbers of
    attempts, which differ every time, are left out. Raises `LLMError` if there are none or the LLM was never probed
    there.
    """
    check_target(workspace, path, force)
    identity = dict(backend.identity())
    capabilities = calls.capabilities(workspace, cache.canonical(identity))
    again = f"icl-curate evaluate --llm {quote(backend.spec)}"
    none = LLMError(f"this workspace has no answers of {backend.spec}", again)
    if capabilities is None:
        raise none
    details = json.dumps({"spec": backend.spec, "identity": identity, "capabilities": json.loads(capabilities)})
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        count = calls.write_recording(workspace, cache.label(backend), file, details)
        if not count:
            raise none

    replace_file(path, write)
    return count


class RecordedLLM:
    """The backend behind ``replay:``. Raises `LLMError` if `record` did not write the file."""

    local = True
    max_in_flight = 1
    batch_size = 4096

    def __init__(self, name: str) -> None:
        self.spec = f"replay:{name}"
        self.path = Path(name).expanduser()

    def identity(self) -> Mapping[str, Any]:
        """The identity of the recorded LLM: its answers are cached under the same keys."""
        details, _ = self._read
        return dict(details["identity"])

    def count_tokens(self, prompt: Prompt) -> int:
        """An estimate, four characters per token: the tokenizer is not in the file."""
        return len(prompt.text) // 4

    async def probe(self) -> Capabilities:
        details, _ = self._read
        return cache.load_capabilities(cache.canonical(details["capabilities"]))

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        (_, recorded), identity, results = self._read, self.identity(), list[Result]()
        for request in requests:
            query = request.prompt.query
            key, other = cache.call_key(identity, request), cache.other_key(identity, request)
            if call := recorded.get(key) or recorded.get(other or key):
                results.append(cache.to_answer(call, cached=False))
            else:
                lacking = f"{self.path.name} has no answer to this prompt for '{query.id or query.input[:40]}'"
                results.append(Failure("missing", lacking))
        return results

    async def close(self) -> None:
        """Nothing to release."""

    @cached_property
    def _read(self) -> tuple[Mapping[str, Any], Mapping[bytes, calls.Call]]:
        """What the file says of the LLM, and the answers, by key."""
        try:
            told, answers = calls.read_recording(self.path)
            details = json.loads(told or "{}")
            if not all(isinstance(details.get(name), dict) for name in ("identity", "capabilities")):
                raise self._unreadable("it is no recording")
        except (duckdb.Error, OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._unreadable(" ".join(str(getattr(error, "strerror", None) or error).split())[:120]) from error
        return details, answers

    def _unreadable(self, why: str) -> LLMError:
        return LLMError(f"cannot replay {self.path}: {why}", "icl-curate llm record FILE --llm SPEC writes one")
