"""What the user of this machine trusts, stored beside the user's own config file and never in a workspace.

A workspace may come from somebody else. Two things in it could act in the user's name: its ``config.toml`` may name a
server to send prompts and key to, and a job's folder names a command to run. So a server that only the workspace names
is used after the user has confirmed it for that folder, and a job's folder has a signature that nobody else can create.
Both are valid for one path: after a folder was moved or copied, they are asked for again.

A file that another user could have written is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..base import files
from ..base.errors import CurateError, LLMError, UsageError
from ..base.files import replace_file
from ..store.locks import exclusive
from ..store.settings import user_file

FILE = "trust.json"

_PLAIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!-~]*)?", re.IGNORECASE)
"""No user name, no look-alike letters of another alphabet, nothing that two programs could parse as different hosts."""


class UnconfirmedServer(LLMError):
    """Only the workspace's own file names this server. ``url`` is in the form that `confirm` takes, empty if it cannot
    be confirmed; ``workspace`` is the folder."""

    def __init__(self, url: str, workspace: str, option: str = "--base-url", keyed: bool = False) -> None:
        self.url, self.workspace = canonical(url), workspace
        sent = "prompts" if option == "--base-url" else "texts"
        keys = os.environ.get("OPENAI_API_KEY") or (option != "--base-url" and os.environ.get("ICL_CURATE_ENCODER_KEY"))
        what = f"{sent} and your key" if keys or keyed else sent
        fix = f"give a server with {option}"
        if self.url:
            where = shlex.quote(workspace)
            fix = f"icl-curate llm trust {shlex.quote(self.url)} -w {where}   (once), or give it with {option}"
        super().__init__(f"the workspace's own config.toml would send {what} to {self.url or repr(url)}", fix)


@dataclass
class _TrustFile:
    confirmed: dict[str, list[str]] = field(default_factory=dict)
    """Confirmed base URLs, by workspace folder."""
    secret: str = ""


def canonical(url: str) -> str:
    """The normal form of a base URL for comparison: scheme and host in lower case, no default port, no slash at the
    end. Empty for a URL that could be parsed as another one than it seems."""
    if not _PLAIN.fullmatch(url.strip()):
        return ""
    parts = urlsplit(url.strip())
    host = parts.netloc.lower().removesuffix(":80" if parts.scheme == "http" else ":443")
    return parts._replace(netloc=host).geturl().rstrip("/")


def require(url: str, workspace: str, option: str = "--base-url", keyed: bool = False) -> None:
    """Raise `UnconfirmedServer` unless the user has confirmed this base URL for the workspace in this folder.
    ``keyed``: the user's headers would be sent there, too."""
    if not canonical(url) or canonical(url) not in confirmed(Path(workspace)):
        raise UnconfirmedServer(url, workspace, option, keyed)


def confirmed(workspace: Path) -> list[str]:
    """The base URLs that the user confirmed for a workspace."""
    return _read().confirmed.get(str(workspace.resolve()), [])


def confirm(workspace: Path, url: str) -> str:
    """Allow prompts and key to be sent to this base URL of the workspace; returns its normal form."""
    address = _checked(url)
    with _writing() as kept:
        urls = kept.confirmed.setdefault(str(workspace.resolve()), [])
        if address not in urls:
            urls.append(address)
    return address


def forget(workspace: Path, url: str) -> str:
    """Undo `confirm`. Raises `UsageError` if the server is not confirmed."""
    address, folder = _checked(url), str(workspace.resolve())
    with _writing() as trusted:
        urls = trusted.confirmed.get(folder, [])
        if address not in urls:
            raise UsageError(f"{address} is not confirmed for {workspace}", "icl-curate llm trust")
        urls.remove(address)
        if not urls:
            del trusted.confirmed[folder]
    return address


def sign(what: object) -> str:
    """A signature over a JSON value that only this user can create."""
    secret = _read().secret
    if not secret:
        with _writing() as kept:
            secret = kept.secret = kept.secret or secrets.token_hex(32)
    return _signature(secret, what)


def is_signed(what: object, signature: object) -> bool:
    """Whether this user created the signature with `sign`."""
    secret = _read().secret
    if not secret or not isinstance(signature, str):
        return False
    return hmac.compare_digest(_signature(secret, what).encode(), signature.encode("utf-8", "replace"))


def place() -> Path:
    """The path of the file; ``ICL_CURATE_CONFIG`` moves it with the user's config."""
    return user_file(FILE)


def _checked(url: str) -> str:
    found = canonical(url)
    if not found:
        raise UsageError(f"{url!r} is not a valid base URL", "give only scheme, host, port and path, in ASCII")
    return found


def _signature(secret: str, what: object) -> str:
    return hmac.new(bytes.fromhex(secret), json.dumps(what, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _demand_own(*paths: Path) -> None:
    """Raise `CurateError` if another user could have written one of them: what is in it is not this user's word."""
    if os.name == "nt":  # pragma: no cover
        return
    elsewhere = "set ICL_CURATE_CONFIG=/folder/of/your/own/config.toml"
    for path in paths:
        state = path.stat()
        if state.st_uid not in (os.getuid(), 0):
            raise CurateError(f"{path} is not believed: it is not yours{files.owner(path)}", elsewhere)
        if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            shared = state.st_uid != os.getuid() or state.st_mode & stat.S_ISVTX  # as /tmp: it must stay as it is
            raise CurateError(
                f"{path} is not believed: other users may write it",
                elsewhere if shared else f"chmod go-w {shlex.quote(str(path))}",
            )


def _read() -> _TrustFile:
    try:
        with files.open_regular(place()) as file:
            _demand_own(place().parent, place())
            stored = json.loads(file.read())
        bytes.fromhex(stored["secret"])
        if not all(isinstance(urls, list) for urls in stored["confirmed"].values()):
            raise TypeError
        return _TrustFile(stored["confirmed"], stored["secret"])
    except FileNotFoundError:
        return _TrustFile()
    except OSError as error:
        raise CurateError(f"cannot read {place()}: {error.strerror}", f"ls -l {shlex.quote(str(place()))}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CurateError(
            f"{place()} is damaged", f"rm {shlex.quote(str(place()))}   (servers must then be confirmed again)"
        ) from error


@contextmanager
def _writing() -> Iterator[_TrustFile]:
    """The stored data, to be changed: written atomically when the block ends, by one process at a time."""
    path = place()
    try:
        with exclusive(path.with_suffix(".lock")):
            kept = _read()
            _demand_own(path.parent)
            yield kept
            text = json.dumps({"confirmed": kept.confirmed, "secret": kept.secret}, indent=1)
            replace_file(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise CurateError(
            f"cannot write {path}: {error.strerror}", "set ICL_CURATE_CONFIG=/writable/folder/config.toml"
        ) from error
