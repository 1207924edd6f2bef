"""The torch side of an encoder: a model run over many texts.

On a CPU each batch runs on one thread and several batches run in parallel. Threads that share one small product wait
for each other at every layer: beside one other busy process a single text then took 0.47 s instead of 12 ms, and bulk
encoding was a tenth to a quarter slower even on an idle machine. It also makes a batch's bits independent of the number
of cores.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..base.arrays import Float32s
from ..base.errors import UsageError
from ..base.packages import require
from ..base.progress import SILENT, Event, Monitor
from .checked import map_safetensors
from .weights import hub_answers, unusable

if TYPE_CHECKING:
    import torch

CPU_BATCH, BATCH = 32, 256
"""Texts per batch on a CPU and on an accelerator."""

PAD = 0
"""The default encoder's token that fills a batch."""

WORDS = "embeddings.word_embeddings.weight"
"""Its vectors of tokens."""

T = TypeVar("T")
Features = dict[str, Any]


class Transformer:
    """A loaded model. Thread-safe; its weights never change."""

    def __init__(self, source: str, device: str = "auto", packaged: bool = False) -> None:
        """Load a hub name or a folder onto a torch device (``auto``: cuda, else mps, else cpu); ``packaged``: it is the
        default encoder's folder, for which `Packaged` is enough.

        Imports torch, and for others than the default encoder sentence-transformers, which takes seconds. Raises
        `UsageError` if the model or the device is not available.
        """
        require(f"the encoder {source}", "torch", *([] if packaged else ["sentence_transformers"]))
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # batches are parallel already
        import torch

        where = _device(device)
        self._model: Packaged | Published = Packaged(Path(source), where) if packaged else _load(source, where)
        self.dimension: int = self._model.dimension
        self.device = str(where)
        self._batch = CPU_BATCH if where.type == "cpu" else BATCH
        self._lock = threading.Lock()
        self._halved: Callable[[Features], Features] | None = None
        self._halves = _computes_bfloat16(where)
        self._threads = torch.get_num_threads() if where.type == "cpu" else 1
        self._pool = _single_threaded(self._threads)

    def sentences(self, texts: Sequence[str], reduced: bool, monitor: Monitor = SILENT) -> Float32s:
        """Sentence vectors (n, dimension), not normalised; ``reduced`` allows bfloat16."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for places, batch in self._batches(texts, reduced, self._sentence_vectors, monitor):
            vectors[places] = batch
        return vectors

    def tokens(self, texts: Sequence[str], reduced: bool, monitor: Monitor = SILENT) -> list[Float32s]:
        """Vectors of each text's own tokens, (tokens, width), not normalised. `UsageError` if there are none."""
        if self._model.added is None:
            raise UsageError(
                "this encoder has no token vectors, which Set-BSR needs",
                "choose another method, or a BERT-like encoder",
            )
        vectors: list[Float32s] = [np.empty((0, 0), np.float32)] * len(texts)
        for places, batch in self._batches(texts, reduced, self._token_vectors, monitor):
            for place, tokens in zip(places, batch, strict=True):
                vectors[place] = tokens
        return vectors

    def _batches(
        self, texts: Sequence[str], reduced: bool, forward: Callable[[Features], T], monitor: Monitor
    ) -> Iterator[tuple[list[int], T]]:
        """(positions in ``texts``, output of ``forward``) as batches finish; texts of similar length together."""
        # the longest first: out-of-memory errors show at once, and the remaining time is not underestimated
        order = sorted(range(len(texts)), key=lambda i: (-len(texts[i]), i))
        waiting = (order[i : i + self._batch] for i in range(0, len(order), self._batch))
        head = self._head(reduced)
        running: dict[Future[T], list[int]] = {}
        done = 0
        monitor.report(Event("encode", 0, len(texts)))
        try:
            while True:
                monitor.check()
                for places in islice(waiting, 2 * self._threads - len(running)):
                    running[self._pool.submit(self._run, [texts[i] for i in places], head, forward)] = places
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    places = running.pop(future)
                    yield places, future.result()
                    done += len(places)
                    monitor.report(Event("encode", done, len(texts)))
        finally:
            for future in running:
                future.cancel()

    def _run(self, texts: list[str], head: Any, forward: Callable[[Features], T]) -> T:
        import torch

        with torch.inference_mode():
            features = self._model.features(texts)
            features = {
                key: value.to(self.device) if isinstance(value, torch.Tensor) else value
                for key, value in features.items()
            }
            features = head(features)
            if "token_embeddings" in features:
                features["token_embeddings"] = features["token_embeddings"].float()
            return forward(features)

    def _sentence_vectors(self, features: Features) -> Float32s:
        vectors: Float32s = self._model.pooled(features).float().cpu().numpy()
        return vectors

    def _token_vectors(self, features: Features) -> list[Float32s]:
        import torch

        ids = features["input_ids"]
        own = features["attention_mask"].bool() & ~torch.isin(ids, torch.tensor(self._model.added, device=ids.device))
        whole = features["token_embeddings"].cpu().numpy()
        return [vectors[mask] for vectors, mask in zip(whole, own.cpu().numpy(), strict=True)]

    def _head(self, reduced: bool) -> Callable[[Features], Features]:
        """The model's head, in bfloat16 if that is allowed and native."""
        if not (reduced and self._halves) or self._model.added is None:
            return self._model.head
        with self._lock:
            if self._halved is None:
                self._halved = self._model.halved()
            return self._halved


class Packaged:
    """The default encoder from its folder: its BERT and the mean over the tokens. Importing transformers takes as long
    as the vectors of a thousand texts, sentence-transformers twice that.

    Texts become ``input_ids`` and ``attention_mask``, to which ``head`` adds ``token_embeddings``; ``halved`` is a copy
    of the head in bfloat16. ``pooled``: one vector for each text, (texts, dimension). ``added``: ids that the tokeniser
    adds before and after a text."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        from tokenizers import Tokenizer

        config, limits = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("config.json", "sentence_bert_config.json")
        )
        self._tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokeniser.enable_truncation(limits["max_seq_length"])
        self._tokeniser.enable_padding(pad_id=PAD)
        self._bert = Bert.of(folder / "model.safetensors", config, device)
        self.dimension: int = config["hidden_size"]
        self.added = sorted({PAD, *self._tokeniser.encode("").ids})

    @property
    def head(self) -> Callable[[Features], Features]:
        return self._bert

    def halved(self) -> Callable[[Features], Features]:
        import torch

        # of the words' vectors, half of all weights, those that are looked up are converted
        weights = {
            name: weight if name == WORDS else weight.to(torch.bfloat16) for name, weight in self._bert.weights.items()
        }
        return replace(self._bert, weights=weights)

    def features(self, texts: list[str]) -> Features:
        import torch

        encodings = self._tokeniser.encode_batch(texts)
        return {
            "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
            "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
        }

    def pooled(self, features: Features) -> torch.Tensor:
        from torch.nn.functional import normalize

        mask = features["attention_mask"].unsqueeze(-1).float()
        return normalize((features["token_embeddings"] * mask).sum(dim=1) / mask.sum(dim=1))


@dataclass(frozen=True, slots=True)
class Bert:
    """BERT over a padded batch (Devlin et al. 2019: post-norm layers, exact GELU), the twin of `encoder.MiniLM` in
    torch: its layers are in ``weights``, by their published names."""

    weights: Mapping[str, torch.Tensor]
    heads: int
    layers: int
    epsilon: float

    @classmethod
    def of(cls, file: Path, config: Mapping[str, Any], device: torch.device) -> Bert:
        """From a safetensors file and the model's ``config.json``."""
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the map cannot be written, and is not
            weights = {name: torch.from_numpy(array).to(device) for name, array in map_safetensors(file)[0].items()}
        return cls(weights, config["num_attention_heads"], config["num_hidden_layers"], config["layer_norm_eps"])

    def __call__(self, features: Features) -> Features:
        from torch.nn.functional import gelu, scaled_dot_product_attention

        w, mask = self.weights, features["attention_mask"].bool()[:, None, None, :]
        kind = w["embeddings.token_type_embeddings.weight"][0]
        place = w["embeddings.position_embeddings.weight"][: features["input_ids"].shape[1]]
        x = self._norm(w[WORDS][features["input_ids"]].to(kind.dtype) + kind + place, "embeddings.LayerNorm")
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._linear(x, f"{name}.attention.self.{part}").view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            mixed = scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)
            attended = self._linear(mixed, f"{name}.attention.output.dense")
            x = self._norm(x + attended, f"{name}.attention.output.LayerNorm")
            inner = gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return {**features, "token_embeddings": x}

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        from torch.nn.functional import linear

        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        from torch.nn.functional import layer_norm

        return layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.epsilon)


class Published:
    """A sentence-transformers model, as `Packaged`: its first module is the head, the others pool. ``added`` is None
    for a model without token vectors."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.dimension: int = model.get_embedding_dimension()
        self.added = _added_tokens(model)
        name = model.default_prompt_name
        self._prompt: str | None = model.prompts.get(name) or None if name else None

    @property
    def head(self) -> Callable[[Features], Features]:
        head: Callable[[Features], Features] = self._model[0]
        return head

    def halved(self) -> Callable[[Features], Features]:
        import torch

        halved: Callable[[Features], Features] = copy.deepcopy(self._model[0]).to(torch.bfloat16)
        return halved

    def features(self, texts: list[str]) -> Features:
        return dict(self._model.preprocess(texts, prompt=self._prompt))

    def pooled(self, features: Features) -> torch.Tensor:
        for module in list(self._model)[1:]:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors


def _load(source: str, device: torch.device) -> Published:
    """The model in evaluation mode, from this machine, else from the hub."""
    import sentence_transformers  # noqa: F401  # before its loggers are set

    _write_nothing()
    folder = Path(source).is_dir()
    try:
        return _open(source, device, local=True)
    except Exception as error:  # anything that the hub's cache, the file system or the model's own code raises
        if folder or not hub_answers():
            raise unusable(
                source, error if folder else OSError("not on this machine, and the hub cannot be reached")
            ) from error
    try:
        return _open(source, device, local=False)
    except Exception as error:  # as above, or the download
        raise unusable(source, error) from error


def _write_nothing() -> None:
    """What loads a model is not to write on the terminal."""
    import tqdm
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers_logging

    tqdm.tqdm.set_lock(threading.RLock())  # its own lock starts a process, which fails inside a running Textual app
    disable_progress_bars()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    for name in ("sentence_transformers", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _open(source: str, device: torch.device, local: bool) -> Published:
    from sentence_transformers import SentenceTransformer

    return Published(SentenceTransformer(source, device=str(device), local_files_only=local).eval())


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"no device {name}: {reason}", "--device auto") from error
    return device


def _computes_bfloat16(device: torch.device) -> bool:
    """Whether the device has native bfloat16 arithmetic; an emulation is slower than float32."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _added_tokens(model: Any) -> list[int] | None:
    """Ids that the tokeniser adds before and after a text; None for a model without token vectors."""
    tokeniser = getattr(model, "tokenizer", None)
    if tokeniser is None or not hasattr(model[0], "auto_model"):
        return None
    names = ("cls_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id")
    return sorted({found for name in names if (found := getattr(tokeniser, name, None)) is not None})


def _single_threaded(workers: int) -> ThreadPoolExecutor:
    """A pool in whose threads torch computes on one thread each; other threads are not affected."""
    import torch

    before = torch.get_num_threads()
    ready = threading.Barrier(workers)
    pool = ThreadPoolExecutor(workers, "encode", lambda: torch.set_num_threads(1))
    wait([pool.submit(ready.wait) for _ in range(workers)])
    torch.set_num_threads(before)  # the setting of a thread is also the default of new threads
    return pool
