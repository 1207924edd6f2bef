"""``openai:MODEL``: an encoder behind an OpenAI-compatible API, over HTTP.

Every text may cost money. So a vector is handed over to be stored when its request is answered, not when all are, and
the vectors of single queries are kept beside those of the pool. Requests that fail for a while are repeated; those that
a server finds too large are divided.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float32s, Int64s
from ..base.errors import BudgetError, LLMError, UsageError, counted
from ..base.files import private
from ..base.progress import SILENT, Event, Monitor
from ..http import trust
from ..http.address import Address, origin_of
from ..http.refusals import ENCODER_KEY, LLM_KEY, Failure, error_in, explained, failure_of, key_in, pause
from ..store.settings import Settings
from .encoder import Arrived

if TYPE_CHECKING:
    import openai

PREFIX = "openai:"
AT_ONCE, BYTES = 128, 200_000
"""Maximum texts of a request and their maximum size in UTF-8: a tenth of what OpenAI takes."""
THREADS = 8
QUERIES = 10_000
"""Maximum queries whose vectors are kept."""
MOST_DIMENSIONS = 1 << 16
LONGEST_WAIT = 120.0
"""Seconds: a server that asks for a longer pause ends the work, and so does one that is busy or away for so long."""
TOLD = 5.0
"""Seconds from which the pause before a request is sent again is told."""

_BYTES_PER_TOKEN = 4.0


@dataclass(frozen=True, slots=True)
class Access:
    """How servers are reached. ``url_by``: the workspace whose own file names ``url``, which then needs to be
    confirmed; ``trusted``: base URLs that the key of the LLM is meant for; ``price``: US dollars per million tokens;
    ``max_cost``: US dollars that may be spent; ``patience``: seconds after which nothing is sent again, None for as
    many attempts as set."""

    url: str = ""
    url_by: str = ""
    trusted: tuple[str, ...] = ()
    timeout: float = 60.0
    attempts: int = 6
    price: float | None = None
    max_cost: float | None = None
    patience: float | None = None

    @classmethod
    def of(cls, settings: Settings, max_cost: float | None = None) -> Access:
        own = "" if settings.base_url_by else settings.base_url
        return cls(
            settings.encoder_url, settings.encoder_url_by, (own,) if own else (), settings.timeout, settings.attempts,
            None if settings.encoder_price_by else settings.encoder_price, max_cost,
            settings.encoder_patience,
        )  # fmt: skip


DEFAULTS = Access()


def is_served(name: str) -> bool:
    """Whether an encoder is behind an API."""
    return name.startswith(PREFIX)


_AGAIN = "run the same command again later; vectors are kept"
_FIXES = {
    "timeout": _AGAIN,
    "wait": "run the same command again after that; vectors are kept",
    "unreachable": "start the server or correct --encoder-url",
    "transient": _AGAIN,
    "rate_limit": _AGAIN,
    "malformed": "check --encoder-url and the model's name: that is no reply of an encoder; vectors are kept",
    "quota": "add credit to the account, or choose another encoder",
    "not_found": "check the model's name, and that --encoder-url ends in /v1 if it needs that",
    "redirect": "to use that server, give it with --encoder-url URL",
}


class EncoderDown(LLMError):
    """The server fails, whatever the texts are."""


class _Failed(Exception):
    """A request without vectors; ``gone``: nothing listens at the address."""

    def __init__(self, failure: Failure, gone: bool = False) -> None:
        super().__init__(failure.message)
        self.failure, self.gone = failure, gone


class ServedEncoder:
    """An encoder behind an API; ``openai:MODEL@256`` asks for vectors of 256 dimensions. Thread-safe.

    ``folder``: where the vectors of queries are kept; ``dimension``: that of the vectors stored before, which new ones
    must have. The key is read for each connection; it is never stored or shown, and sent to no server but the one it is
    meant for. Raises `UsageError` for an invalid name or address, `UnconfirmedServer` for a server that only the
    workspace's own file names.
    """

    local = False

    def __init__(
        self, name: str, access: Access = DEFAULTS, folder: Path | None = None, dimension: int | None = None
    ) -> None:
        model, _, size = name.removeprefix(PREFIX).rpartition("@")
        self._asked = int(size) if model and size.isdecimal() else None
        self._model = model if self._asked else name.removeprefix(PREFIX)
        if not self._model:
            raise UsageError(f"'{name}' names no encoder", "--encoder openai:MODEL")
        if access.url_by and access.url:
            trust.require(access.url, access.url_by, "--encoder-url")
        self.name = name
        self.access = access
        self.address = Address.of(access.url)
        self.tokens = 0
        """Tokens read by the server so far."""
        self._answered_at = self._there_at = 0.0
        """When the latest answer came, and when the latest request was sent that got one."""
        self._bills, self._foreseen = 0, 0
        """Requests that were answered so far, and `estimate` of their texts."""
        self._notes: deque[str] = deque()
        self._noted_until = 0.0
        """When the pause ends that was told last."""
        self._width = dimension
        self._kept = _QueryVectors(folder)
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        if self._width is None:
            self.encode(["dimension"])
        assert self._width is not None
        return self._width

    @property
    def where(self) -> str:
        """Model and server, as text."""
        return f"{self._model} at {self.address}"

    @property
    def cost(self) -> float | None:
        """US dollars spent so far, None if the price is not known."""
        return None if self.access.price is None else self.tokens * self.access.price / 1e6

    def announced(self, texts: Sequence[str]) -> str:
        """Where texts go, and what that may cost."""
        tokens = estimate(texts)
        cost = "" if self.access.price is None else f", ${tokens * self.access.price / 1e6:.4f}"
        return f"{len(texts):,} texts, about {counted(tokens, 'token')}{cost}, go to {self.where}"

    def described(self) -> str:
        """What was read, and its cost."""
        cost = "" if self.cost is None else f", ${self.cost:.4f}"
        return f"{self.where} read {counted(self.tokens, 'token')}{cost}"

    def encode(self, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        """One vector of length 1 per text, (n, dimension). Raises `LLMError` if the server does not give them."""
        by_place: dict[int, Float32s] = {}
        distinct = list(dict.fromkeys(texts))
        with self._lock:
            stored = [self._kept.get(text, self._width) for text in distinct]
        fresh = [i for i, vector in enumerate(stored) if vector is None]

        def keep(places: Int64s, vectors: Float32s) -> None:
            by_place.update(zip([fresh[i] for i in places.tolist()], vectors, strict=True))
            with self._lock:
                for i, vector in zip(places.tolist(), vectors, strict=True):
                    self._kept.add(distinct[fresh[i]], vector)

        self.encode_each([distinct[i] for i in fresh], keep, monitor)
        by_place |= {i: vector for i, vector in enumerate(stored) if vector is not None}
        place = {text: i for i, text in enumerate(distinct)}
        return np.array([by_place[place[text]] for text in texts], np.float32).reshape(len(texts), self._width or 0)

    encode_queries = encode

    def encode_tokens(self, texts: Sequence[str], monitor: Monitor = SILENT) -> list[NDArray[np.float16]]:
        raise UsageError(
            f"{self.name} has no token vectors, which Set-BSR needs", "choose another method, or a BERT-like encoder"
        )

    def encode_each(self, texts: Sequence[str], keep: Arrived, monitor: Monitor = SILENT) -> None:
        """Encode the texts and ``keep`` the vectors of each request when it is answered, in the caller's thread.

        Whatever ends this early, what was sent is waited for and kept. Raises `LLMError`, `BudgetError`, `Cancelled`.
        """
        if not texts:
            return
        stop = threading.Event()
        batches = _batches(texts)
        running: dict[Future[Float32s], list[int]] = {}
        done = 0
        monitor.report(Event("encode", 0, len(texts)))
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                while True:
                    monitor.check()
                    while len(running) < self._flights and (places := next(batches, None)):
                        batch = [texts[i] for i in places]
                        self._check_budget([*batch, *(texts[i] for some in running.values() for i in some)])
                        running[pool.submit(self._patiently, batch, stop)] = places
                    if not running:
                        return
                    for future in wait(running, 0.1, FIRST_COMPLETED).done:
                        places = running.pop(future)
                        keep(np.array(places, np.int64), future.result())
                        done += len(places)
                        monitor.report(Event("encode", done, len(texts)))
                    while self._notes:
                        monitor.report(Event("encode", done, len(texts), note=self._notes.popleft()))
            except BaseException:
                stop.set()
                for future, places in running.items():
                    if not future.cancel() and future.exception() is None:
                        keep(np.array(places, np.int64), future.result())
                raise

    @property
    def _flights(self) -> int:
        """Requests at a time; under a cost limit no more than there were bills, as one may be dearer than foreseen."""
        return THREADS if self.access.max_cost is None else min(THREADS, max(1, self._bills))

    def _check_budget(self, texts: Sequence[str]) -> None:
        """Raise `BudgetError` if a batch and those in flight may cost too much; bills above the estimate raise it."""
        if self.access.max_cost is None:
            return
        if self.access.price is None:
            raise UsageError("a cost limit needs the encoder's price", "--encoder-price USD per million tokens")
        expected = self.tokens + estimate(texts) * max(1.0, self.tokens / max(self._foreseen, 1))
        if expected * self.access.price / 1e6 > self.access.max_cost:
            raise BudgetError(
                f"the budget is used up: ${self.cost:.4f} of ${self.access.max_cost:.4f} for {self.name}",
                "run the same command again with a higher --max-cost; vectors are kept",
            )

    # requests

    def _patiently(self, texts: Sequence[str], stop: threading.Event) -> Float32s:
        """The vectors of one batch, with retries; in parts if the server does not take it whole."""
        started, failed = time.monotonic(), math.inf
        for attempt in count(1):
            try:
                return self._once(texts)
            except _Failed as error:
                never = error.gone and not self._answered_at  # nor may there be a server
                failure, attempts = error.failure, 2 if never else self.access.attempts
            if failure.kind in ("request", "context", "refusal"):
                return self._divided(texts, stop, failure.message)
            failed = min(failed, time.monotonic())
            # a limit is mostly per minute and a restart takes one, which attempts do not outlast; where others were
            # answered since, it is these texts that end a connection
            away = failure.busy or (failure.gone and not never and self._there_at < failed)
            waited = time.monotonic() - max(started, self._answered_at)
            patient = away and attempts > 1 and waited < LONGEST_WAIT
            last = (attempt >= attempts and not patient) or (failure.retry_after or 0.0) > LONGEST_WAIT
            rest = pause(attempt, failure.retry_after)
            last |= self.access.patience is not None and time.monotonic() - started + rest > self.access.patience
            if last or not failure.retryable or stop.is_set():
                break
            with self._lock:  # once for all requests that wait at the same time
                if rest >= TOLD and (now := time.monotonic()) >= self._noted_until:
                    self._noted_until = now + rest
                    self._notes.append(f"{self.where}: {failure.message}; it is asked again in {rest:,.0f} s")
            stop.wait(rest)
        key = LLM_KEY if self._is_llms() else ENCODER_KEY
        told = explained(failure, self.where, _FIXES | {"auth": f"export {key}=…"})
        raise EncoderDown(told.what, told.fix)

    def _divided(self, texts: Sequence[str], stop: threading.Event, what: str) -> Float32s:
        if len(texts) == 1:
            raise LLMError(
                f"{self.where}: {what}", f"check the text that begins with {texts[0][:40]!r}, or choose another model"
            )
        half = len(texts) // 2
        return np.concatenate([self._patiently(texts[:half], stop), self._patiently(texts[half:], stop)])

    def _once(self, texts: Sequence[str]) -> Float32s:
        """Send once. Raises `_Failed`, and `LLMError` for what no repetition helps against."""
        import httpx2

        body: dict[str, Any] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._asked:
            body["dimensions"] = self._asked
        client, sent = self._connected(), time.monotonic()
        try:
            response = client.post("/embeddings", cast_to=httpx2.Response, body=body)
        except Exception as error:
            gone = isinstance(error.__cause__, httpx2.ConnectError)
            raise _Failed(failure_of(error, self.access.timeout), gone) from error
        vectors, tokens = self._read(response.content, texts)
        with self._lock:
            self.tokens += tokens
            self._answered_at, self._there_at = time.monotonic(), max(self._there_at, sent)
            self._bills, self._foreseen = self._bills + 1, self._foreseen + estimate(texts)
            if self._width is None:
                self._width = vectors.shape[1]
        if vectors.shape[1] != self._width:
            raise EncoderDown(
                f"{self.where} gives vectors of {vectors.shape[1]:,} dimensions, those before have {self._width:,}",
                "it serves another model now: serve the one before, or give this one another name: "
                "icl-curate index --encoder openai:NAME",
            )
        return vectors

    def _read(self, content: bytes, texts: Sequence[str]) -> tuple[Float32s, int]:
        """Vectors (n, dimension) of length 1 in the order of the texts, and the tokens read. Raises `_Failed`
        for a reply that does not have them."""
        try:
            body = json.loads(content)
            if failure := error_in(body):
                raise _Failed(failure)
            data = {entry.get("index", i): entry["embedding"] for i, entry in enumerate(body["data"])}
            vectors = np.array([data[i] for i in range(len(texts))], np.float64)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise _malformed("the reply does not have a vector for each text") from error
        if len(data) != len(texts) or vectors.ndim != 2 or not 0 < vectors.shape[1] <= MOST_DIMENSIONS:
            raise _malformed("the reply does not have a vector for each text")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise _malformed("the reply has vectors that are zero or not finite")
        usage = body.get("usage")
        counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        tokens = counted if type(counted) is int and 0 < counted < 10**9 else estimate(texts)
        return (vectors / lengths).astype(np.float32), tokens

    # connection

    def _connected(self) -> openai.OpenAI:
        with self._lock:
            if self._client is None:
                from ..http import client

                own = key_in(ENCODER_KEY) or (key_in(LLM_KEY) if self._is_llms() else "")
                if not (key := self.address.key(own)):
                    fix = f"export {LLM_KEY}=…, or give your server: --encoder-url URL"
                    raise LLMError(f"{LLM_KEY} is not set", fix)
                self._client = client.connected(self.address, key, self.access.timeout)
            return self._client

    def _is_llms(self) -> bool:
        """Whether the LLM's key is meant for this server: it is the LLM's own."""
        meant = (*self.access.trusted, Address.of("").url)
        return origin_of(self.address.url) in map(origin_of, meant)

    def __getstate__(self) -> dict[str, Any]:
        """Without connection and lock, so that what holds an encoder can be copied and sent to another process."""
        return {**self.__dict__, "_client": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


class _QueryVectors:
    """Vectors of texts, by a hash of the text: in memory, and in a file if there is a folder for it. A line that was
    cut or damaged is read as if it were not there."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._vectors: dict[bytes, Float32s] | None = None

    def get(self, text: str, dimension: int | None) -> Float32s | None:
        found = self._known(dimension).get(_digest(text))
        return found if found is None or dimension in (None, len(found)) else None

    def add(self, text: str, vector: Float32s) -> None:
        held, key = self._known(len(vector)), _digest(text)
        if key in held:
            return
        if len(held) >= QUERIES:
            del held[next(iter(held))]  # the oldest; the file is full
        elif self._folder is not None:
            content = key + vector.astype("<f4").tobytes()
            line = content + zlib.crc32(content).to_bytes(4, "little")
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with open(self._file(len(vector)), "ab", buffering=0, opener=private) as file:
                    if cut := file.tell() % len(line):  # a line that was not written to its end
                        file.truncate(file.tell() - cut)
                    file.write(line)
            except OSError:  # a read-only workspace: it will be asked for again
                self._folder = None
        held[key] = vector

    def _known(self, dimension: int | None) -> dict[bytes, Float32s]:
        if self._vectors is None:
            self._vectors = {}
            if self._folder is not None and dimension is not None:
                self._vectors = dict(_lines(self._file(dimension), dimension))
        return self._vectors

    def _file(self, dimension: int) -> Path:
        assert self._folder is not None
        return self._folder / f"queries-{dimension}.bin"


def _lines(path: Path, dimension: int) -> Iterator[tuple[bytes, Float32s]]:
    try:
        content = path.read_bytes()
    except OSError:
        return
    size = 16 + 4 * dimension + 4
    for start in range(0, len(content) - size + 1, size):
        line = content[start : start + size]
        if zlib.crc32(line[:-4]).to_bytes(4, "little") == line[-4:]:
            yield line[:16], np.frombuffer(line[16:-4], "<f4").astype(np.float32)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def estimate(texts: Sequence[str]) -> int:
    """About how many tokens they have."""
    return round(sum(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN + 1 for text in texts))


def _batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """Positions of consecutive texts, within `AT_ONCE` and `BYTES`."""
    batch: list[int] = []
    size = 0
    for i, text in enumerate(texts):
        more = len(text.encode("utf-8", "surrogatepass"))
        if batch and (len(batch) == AT_ONCE or size + more > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(i)
        size += more
    if batch:
        yield batch


def _malformed(what: str) -> _Failed:
    return _Failed(Failure("malformed", what))
