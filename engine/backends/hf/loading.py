"""Locating and loading the weights of a model."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import CurateError, LLMError
from ...base.files import open_regular
from .adapters import CONFIG, base_of, is_adapter, origin_of, refuse_pickles, with_adapter
from .gguf import folder_of, is_gguf
from .quiet import quiet

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
_DESCRIPTIONS = (
    "config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja", CONFIG,
)  # fmt: skip
_SAMPLES, _SAMPLE = 64, 1 << 16


@dataclass(frozen=True, slots=True)
class Preloaded:
    """A model that was loaded before it was asked for; ``key``: by what, and its `fingerprint`."""

    key: tuple[str, str, str, str]
    description: tuple[Any, Any]
    model: Any


_preloaded: list[Preloaded] = []
"""At most one."""


def preload(name: str, dtype: str, device: str) -> None:
    """Load a model of this machine for the first who asks for its weights, if they are still the same then. One that
    comes from the hub or stands on another is left alone: what its name means could have changed. Raises `LLMError`."""
    if not Path(name).expanduser().exists() or is_adapter(name):
        return
    device = device_named(device)
    key = name, dtype_named(dtype, device), device, fingerprint(name)
    _preloaded[:] = [Preloaded(key, load_description(name), load_weights(name, dtype, device))]


def description_of(name: str) -> tuple[Any, Any]:
    """As `load_description`."""
    for early in _preloaded:
        if (early.key[0], early.key[-1]) == (name, fingerprint(name)):
            return early.description
    return load_description(name)


def weights_of(name: str, dtype: str, device: str) -> Any:
    """As `load_weights`; the caller owns the model."""
    early = _preloaded.pop() if _preloaded else None
    if early is not None and early.key == (name, dtype_named(dtype, device), device, fingerprint(name)):
        return early.model
    del early  # another one is loaded
    return load_weights(name, dtype, device)


def load_description(name: str) -> tuple[Any, Any]:
    """Tokenizer and configuration, those of its base for an adapter; small compared with the weights. Raises `LLMError`
    with a fix."""
    import transformers

    name = base_of(name)
    with _loading(name), quiet():
        config = transformers.AutoConfig.from_pretrained(_source(name), trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(_source(name), trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise LLMError(
            f"hf:{name} has only a slow tokenizer, which gives no character offsets",
            "save it with a tokenizer.json (AutoTokenizer.from_pretrained(…).save_pretrained(…))",
        )
    return tokenizer, config


def load_weights(name: str, dtype: str, device: str) -> Any:
    """The model on its device, ready to answer. Raises `LLMError` with a fix."""
    import torch
    import transformers

    dtype, base = dtype_named(dtype, device), base_of(name)
    if not any(Path(base).expanduser().glob("*.safetensors")):
        convert = "from transformers import AutoModelForCausalLM as M; M.from_pretrained('.').save_pretrained('.')"
        refuse_pickles(base, "*.bin", convert)
    with _loading(base), quiet():
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            _source(base),
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            trust_remote_code=False,
            use_safetensors=True,
        )
    if is_adapter(name):
        _check_base(name, model.config)
        with _loading(name), quiet():
            model = with_adapter(model, name)
    return model.to(device).eval()


def _check_base(name: str, config: Any) -> None:
    """Raise `LLMError` if an adapter's base, of this configuration, is not the one it was trained on: its answers would
    be worthless."""
    trained_on, base = origin_of(name).get("base_weights"), base_of(name)
    if trained_on and trained_on != fingerprint(base, config):
        raise LLMError(
            f"the base of hf:{name} has changed since the adapter was trained: {base}",
            "train it again: icl-curate train calibration",
        )


def device_named(wanted: str) -> str:
    """The device to compute on; ``auto`` is the best available."""
    if wanted != "auto":
        return wanted
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def dtype_named(wanted: str, device: str) -> str:
    """The precision to compute in; ``auto`` is that of the weights, except on a CPU: bfloat16 if the processor supports
    bfloat16 multiplication (twice as fast; without, less than half as fast), else float32."""
    if wanted != "auto" or device != "cpu":
        return wanted
    import torch

    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not public: treated as unsupported if missing
    return "bfloat16" if any(getattr(torch.cpu, name, bool)() for name in tests) else "float32"


def fingerprint(name: str, config: Any = None) -> str:
    """The hub's commit, or a hash over a local folder or GGUF file: description files completely, of each weights file
    its size and 64 samples of 64 KiB (training changes every tensor, and reading tens of gigabytes would take minutes).
    Of an adapter it is over its base, too; ``config`` is that of the base. Raises `LLMError` as `base_of`.
    """
    own, base = _fingerprint(name, config), base_of(name)
    return own if base == name else digest_of([own.encode(), _fingerprint(base, config).encode()])


def _fingerprint(name: str, config: Any) -> str:
    """Of what the name means itself."""
    path = Path(name).expanduser()
    if is_gguf(name):
        return digest_of(_samples(path))
    if not path.is_dir():
        return str(getattr(config, "_commit_hash", None) or "unknown")
    pieces: list[bytes] = []
    for file in sorted({file for pattern in _WEIGHTS for file in path.glob(pattern)}):
        pieces += [file.name.encode(), *_samples(file)]
    pieces.extend((path / name).read_bytes() for name in _DESCRIPTIONS if (path / name).is_file())
    return digest_of(pieces)


def _samples(file: Path) -> list[bytes]:
    """The size of a weights file, and samples of it."""
    with _loading(str(file)), open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        large = size > _SAMPLES * _SAMPLE
        pieces = [str(size).encode()]
        for i in range(_SAMPLES if large else 1):
            stream.seek(i * (size - _SAMPLE) // (_SAMPLES - 1) if large else 0)
            pieces.append(stream.read(_SAMPLE if large else size))
    return pieces


def digest_of(pieces: Iterable[bytes]) -> str:
    """A hash of the pieces and their lengths."""
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()


def _source(name: str) -> str:
    """What transformers loads from: a name on the hub, a folder, or the folder converted from a GGUF file."""
    if is_gguf(name):
        return str(folder_of(name, fingerprint(name)))
    path = Path(name).expanduser()
    if path.exists():
        return str(path)
    if path.is_absolute() or name.startswith(".") or path.suffix == ".gguf":  # nothing that a hub could have
        raise LLMError(f"hf:{name}: there is no such file or folder", "check the path; on the hub: --llm hf:org/name")
    return name


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Report what is wrong with a model that does not load, without its loader's traceback: what transformers raises
    for a damaged file has any type."""
    try:
        yield
    except CurateError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        where = Path(name).expanduser()
        if is_gguf(name) and not (importlib.util.find_spec("gguf") and importlib.util.find_spec("accelerate")):
            fix = "pip install 'icl-curate[gguf]'"
        elif is_gguf(name):
            fix = "transformers cannot read this one: give a folder written by save_pretrained, or serve the file"
        elif where.exists():
            fix = f"give a folder written by save_pretrained, with config.json and tokenizer: ls {name}"
        else:
            fix = "check the name; offline, give the path of a local copy: --llm hf:/path/to/model"
        raise LLMError(f"cannot load hf:{name}: {reason}", fix) from error
