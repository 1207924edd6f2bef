"""LoRA adapters (Hu et al. 2021): small matrices added to a model's own, in a folder of their own.

``hf:FOLDER`` loads such a folder as an LLM: its base from where it was when the adapter was trained, with the adapter
on top. Folders are those of peft's ``save_pretrained``; ones written here also hold `ORIGIN`.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from ...base.errors import LLMError
from ...base.packages import require
from . import gguf

CONFIG = "adapter_config.json"
WEIGHTS, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
ORIGIN = "icl_curate.json"
"""What peft's own file does not tell: the base as it was named here, its fingerprint, and how it was trained."""
FILES = (CONFIG, WEIGHTS, ORIGIN, "README.md")


def is_adapter(name: str) -> bool:
    """Whether the name is that of a folder with an adapter."""
    return (Path(name).expanduser() / CONFIG).is_file()


def origin_of(name: str) -> Mapping[str, Any]:
    """The contents of `ORIGIN`; of an adapter from elsewhere, its base alone. Raises `LLMError` for a folder whose
    files cannot be read."""
    folder = Path(name).expanduser()
    own = (folder / ORIGIN).is_file()
    file, base = (ORIGIN, "base") if own else (CONFIG, "base_model_name_or_path")
    try:
        origin = json.loads((folder / file).read_text(encoding="utf-8"))
        return {**(origin if own else {}), "base": str(origin[base])}
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"no {error} in {file}" if isinstance(error, KeyError) else error
        raise LLMError(f"cannot read the adapter in {name}: {why}", f"give a folder with a whole {file}") from error


def base_of(name: str) -> str:
    """What the base of an adapter is loaded from; the name itself if it is not an adapter. Raises `LLMError` for an
    adapter that cannot be read, or whose weights are pickled."""
    if not is_adapter(name):
        return name
    if not (Path(name).expanduser() / WEIGHTS).is_file():
        read = f"torch.load('{PICKLED}', weights_only=True)"
        refuse_pickles(name, PICKLED, f"import torch, safetensors.torch as s; s.save_file({read}, '{WEIGHTS}')")
    base = str(origin_of(name)["base"])
    return gguf.weights() if base == gguf.NAME else base


def refuse_pickles(name: str, weights: str, convert: str) -> None:
    """Raise `LLMError` if folder ``name`` has such ``weights``: unpickling them can run code of their author's.
    ``convert`` is Python that turns them into safetensors, in that folder."""
    folder = Path(name).expanduser()
    if any(folder.glob(weights)):
        what = f"hf:{name} has its weights in pickled files alone, which can run code of their author's"
        raise LLMError(what, f'convert them to safetensors: cd {quote(str(folder))} && python -c "{convert}"')


def with_adapter(model: Any, name: str) -> Any:
    """The loaded base with the adapter in folder ``name``.

    In float32 the adapter is added to the weights, which costs nothing later. In half precision it is kept beside them:
    most of its changes are smaller than the distance between two neighbouring weights and would be rounded away.
    """
    import torch

    peft = peft_package()
    with without_future_warnings():
        whole = peft.PeftModel.from_pretrained(model, str(Path(name).expanduser()))
    return whole.merge_and_unload() if model.dtype == torch.float32 else whole.get_base_model()


@contextlib.contextmanager
def without_future_warnings() -> Iterator[None]:
    """Suppresses peft's warnings about changes to come in transformers, of which a user can make nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def peft_package() -> Any:
    """The package peft. Raises `UsageError` if it is not installed."""
    require("a LoRA adapter", "peft")
    import peft

    return peft
