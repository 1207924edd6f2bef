"""How the fields of a request to an LLM's server are written in files, variables and flags, and what they may hold.

Settings are plain values: a list of texts is a tuple, a table is kept as JSON text. No message here shows a value of a
table, because those of ``headers`` may be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..base.errors import UsageError
from ..base.files import read_regular

HIDDEN = ("headers", "query_params")
"""Tables whose values are neither stored nor shown, as they may be keys."""

OURS = {
    "model": "--llm", "messages": "", "prompt": "", "n": "", "best_of": "", "stream": "", "echo": "", "logprobs": "",
    "top_logprobs": "", "seed": "--seed", "max_tokens": "--max-tokens", "max_completion_tokens": "--max-tokens",
    "temperature": "--temperature", "top_p": "--top-p", "stop": "--stop", "response_format": "--response-format",
    "reasoning_effort": "--reasoning-effort",
}  # fmt: skip
"""What ``extra_body`` may not hold, and the option that says it, if there is one: plans, budgets and the call cache
know the request by these."""

TRANSPORT = ("host", "connection", "content-length", "content-type", "transfer-encoding")
"""Headers that follow from the connection and the body."""

LONGEST = 20_000
"""Characters of a table, or of a JSON Schema."""

_PAIRS = {"headers": ": ", "query_params": "="}
"""What stands between a name and its value on the command line."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""An environment variable in a value of ``headers`` or ``query_params``, read when a request is sent."""


def list_of(name: str, value: Any) -> tuple[str, ...]:
    """Texts: a list, JSON with one, or one text. Raises `UsageError` for anything else."""
    if isinstance(value, str):
        listed = _json(value) if value.lstrip().startswith("[") else None
        value = listed if isinstance(listed, list) else [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) and text for text in value):
        raise UsageError(f"{name} must be a list of texts", f'{name} = ["</answer>"]')
    return tuple(value)


def table_of(name: str, value: Any) -> str:
    """A table as JSON text, empty for one without entries, from a table, JSON, or the pairs of a repeated option.
    Raises `UsageError` for what is none, or may not be in this one."""
    if typed := isinstance(value, (list, tuple)):
        value = _paired(name, value)
    elif isinstance(value, str):
        value = _json(value) if value.strip() else {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        fix = f'{{"name": "value"}}, or in a config file [{name}] and lines such as name = "value"'
        raise UsageError(f"{name} must be a table, or a JSON object", fix)
    if name == "extra_body":
        for key in OURS.keys() & value.keys():
            fix = f"use {OURS[key]}" if OURS[key] else "leave it out: it is not yours to choose"
            raise UsageError(f"extra_body may not hold {key}", fix)
    else:
        _check_pairs(name, value, typed)
    try:
        text = json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):  # a date of TOML, nan, nested too deeply
        raise UsageError(f"{name} holds what JSON cannot say", "use texts, numbers, true, false and tables") from None
    if len(text) > LONGEST:
        raise UsageError(f"{name} has more than {LONGEST:,} characters", "leave some of it out")
    return text if value else ""


def read_table(text: str) -> dict[str, Any]:
    """The table of `table_of`."""
    return dict(json.loads(text)) if text else {}


def base_url(name: str, url: str) -> str:
    """The base URL of a server without a slash at its end. Raises `UsageError` for what is none, and for one with a
    password or a query string: settings are stored with every run, and shown."""
    try:
        parts = urlsplit(url.strip())
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket too many, a port that is not a number, or above 65535
        right = False
    if not right:
        raise UsageError(
            f"{name} '{without_secrets(url)}' is not a base URL", "give one such as http://localhost:8000/v1"
        )
    if "@" in parts.netloc:
        key = "ICL_CURATE_ENCODER_KEY" if name == "encoder_url" else "a variable: --header 'Authorization: ${VARIABLE}'"
        fix = f"give the server alone, and its key in {key}"
        raise UsageError(f"{name} holds a user name or a password, which would be stored", fix)
    if parts.query or parts.fragment:
        fix = "give the URL without it" + (", and --query-param NAME=VALUE" if name != "encoder_url" else "")
        raise UsageError(f"{name} goes on after its path, with a ? or a #", fix)
    return url.strip().rstrip("/?#")


def without_secrets(url: str) -> str:
    """Only scheme, host, port and path: user names, passwords and query strings may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return re.split("[?#]", url.rpartition("@")[2])[0]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


KEYED = re.compile("//(?:[^/]*|[^/:]*:.*)@")
"""A user name or keys before the bucket of an object store; a secret may hold a slash."""


def _paired(name: str, pairs: Any) -> dict[str, str]:
    mark = _PAIRS.get(name, "")
    table: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition(mark.strip()) if mark and isinstance(pair, str) else ("", "", "")
        if not sign or not key.strip() or key.strip() in table:
            raise UsageError(f"{name} takes a NAME{mark}VALUE for each name", f"NAME{mark}${{VARIABLE}}")
        table[key.strip()] = value.strip()
    return table


def _check_pairs(name: str, table: Mapping[str, Any], typed: bool) -> None:
    """Raise `UsageError` for a name or a value that cannot be sent, or that may not be ``typed`` on a command line."""
    for key, value in table.items():
        what = f"the value of {key[:60]!r} in {name}"
        if not isinstance(value, str):
            raise UsageError(f"{what} is no text", "write it in quotes")
        if not sendable(name, value):
            raise UsageError(f"{what} has a line break or a character that cannot be sent", "use plain text")
        if name != "headers":
            continue
        if not _HEADER.fullmatch(key):
            raise UsageError(f"{key[:60]!r} is no name of a header", "use letters, digits and -")
        if key.lower() in TRANSPORT:
            raise UsageError(f"the header {key} follows from the request", "leave it out")
        if typed and not VARIABLE.search(value):  # jobs store their command line, and others see it
            raise UsageError(
                f"{what} stands on the command line, where others can read it",
                f"name a variable, in single quotes: --header '{key}: ${{VARIABLE}}'; or set it in your config file",
            )
    if len({key.lower() for key in table}) < len(table) and name == "headers":
        raise UsageError("headers name one twice", "keep one")


def sendable(name: str, value: str) -> bool:
    """Whether a value can stand in a header, or in a query."""
    return value.isprintable() and (value.isascii() or name != "headers")


def _json(text: str) -> Any:
    """The value of a JSON text, None for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def schema_file(value: str, base: Path) -> Path | None:
    """The file that a ``response_format`` names, relative to ``base``; None without one."""
    kind, _, name = value.partition(":")
    return base / Path(name).expanduser() if kind == "schema" and name else None


def format_of(value: str, base: Path) -> str:
    """The field ``response_format`` as JSON text, for ``json`` or ``schema:FILE``; empty for none. A file holds a JSON
    Schema, or an object with ``name``, ``schema`` and, if you like, ``strict``. Raises `UsageError`."""
    if not value:
        return ""
    if value == "json":
        return '{"type":"json_object"}'
    path = schema_file(value, base)
    if path is None:
        raise UsageError(f"response_format is '{value[:60]}'", "use json, or schema:FILE with a JSON Schema in FILE")
    try:
        text = read_regular(path, 4 * LONGEST).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the schema {path}: {reason}", "give a file with a JSON Schema") from error
    schema = _json(text)
    if not isinstance(schema, dict) or not schema or len(text) > LONGEST:
        raise UsageError(f"{path} is no JSON Schema of at most {LONGEST:,} characters", 'begin with {"type": "object"')
    if not isinstance(schema.get("schema"), dict):
        schema = {"name": "answer", "schema": schema, "strict": True}
    return json.dumps({"type": "json_schema", "json_schema": schema}, separators=(",", ":"))
