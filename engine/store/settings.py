"""Settings and the origin of each: flag > environment > workspace config > user config > default.

Config files are TOML, ``<workspace>/config.toml`` and ``<user config folder>/icl-curate/config.toml``: each key is
a field of `Settings`. Environment variables have the same names in capitals after ``ICL_CURATE_``. API keys of LLM
providers are never settings: they are read from the environment for each call and never stored.

A workspace may come from somebody else. Its file is trusted with two exceptions: a server that only this file names
gets neither prompt nor key until the user has confirmed it (`trust`), and prices are the user's own word.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..base.code import is_code, name_of, program_in
from ..base.contract import Reported
from ..base.errors import UsageError, did_you_mean
from ..base.files import read_regular
from ..pool.display import display_line
from ..pool.prompts import ORDERS, Order
from ..pool.records import ANSWER_TOKENS
from .request_fields import HIDDEN, KEYED, base_url, format_of, list_of, read_table, schema_file, table_of

if TYPE_CHECKING:
    from ..prompting.template import Template

PREFIX = "ICL_CURATE_"
URLS = ("base_url", "encoder_url")
"""Settings that name a server."""
PLACES = ("engine_address", "engine_storage")
"""Settings that name machines which get the pool's texts; Ray's can run code here, too."""
PRICES = ("price_in", "price_out", "encoder_price", "judge_price_in", "judge_price_out")
"""Settings that a limit of costs relies on: a workspace's own file does not replace those of the user."""
TOLD = ("llm", "concurrency", "attempts", "metric", "reasoning_effort", "extra_body")
"""Settings that cost the user money (the metric judge is an LLM): told before prompts are sent, where a workspace's own
file alone sets them."""
NAMED = (
    "metric", "read", "judge_llm", "judge_prompt", "judge_price_in", "judge_price_out", "headers", "query_params",
    "response_format", "extra_body", "template", "llm",
)  # fmt: skip
"""Settings that can run code, hang, read a file, send a variable of the environment or spend money by what they name:
only the user may."""
CODE = ("metric", "read", "template", "llm")
"""Settings for which Python may give a function or another object of a module."""
TELLABLE = 500
"""Characters of ``extra_body`` that a workspace's own file may have: it is told on a line."""
MOST_TEMPLATE = 1 << 18
"""Bytes of a template's file that are read."""
MOST_CONFIG = 1 << 20
"""Bytes of a config file that are read."""
MOST_SEED = 1 << 62
"""Seeds are below it, so that several in a row are integers of 64 bits."""
ENGINES = ("inline", "ray")
CONFIG = "config.toml"


def _setting(default: Any, about: str, kind: type | None = None) -> Any:
    """A field that can be set; ``kind`` is the type of a field whose default is None."""
    return field(default=default, metadata={"about": about, "kind": kind or type(default)})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings that a file can set; commands have flags of the same names."""

    encoder: str = _setting("all-MiniLM-L6-v2", "sentence-transformers name or path, or openai:MODEL behind an API")
    encoder_url: str = _setting("", "server of openai: encoders; empty: OPENAI_BASE_URL or OpenAI itself")
    encoder_url_by: str = ""
    """Not a setting: as ``base_url_by``, of ``encoder_url``."""
    encoder_patience: float | None = None
    """Not a setting: seconds after which an encoder behind an API is not asked again, where others wait for it; None:
    as many attempts as set."""
    encoder_price: float | None = _setting(
        None, "price of the encoder per million tokens in USD; not set: unknown", float
    )
    device: str = _setting("auto", "auto, cpu, cuda or mps, for the encoder and hf LLMs")
    dtype: str = _setting("auto", "precision of the encoder and hf LLMs: auto, float32, bfloat16 or float16")
    near_duplicate: float = _setting(0.8, "Jaccard of character 5-grams, .5 to 1, from which inputs repeat each other")
    method: str = _setting("dense", "selection method")
    retrieval_text: str = _setting("input", "input, or passage: the input followed by its passage (index again then)")
    k: int = _setting(5, "number of demonstrations per prompt")
    preselect: int = _setting(100, "number of nearest demonstrations that dpp and set-bsr choose from")
    order: Order = _setting("best-last", "best-last (next to the query) or best-first")
    template: str = _setting(
        "auto",
        "how prompts are written: a built-in template (icl-curate template list), a file, or module:function",
    )
    template_text: str = ""
    """Not a setting: the text of the template's file as it was read; empty for a built-in one."""
    prompt_format: str = _setting("auto", "auto, Q-A, QO-A, SQO-A, SQ-A, or a text with {input} {options} {context}")
    instruction: str = _setting(
        "", "first line of every prompt, {labels} for the labels; empty: one that fits the task"
    )
    answer_prefix: str = _setting("", "text before every answer, such as: The answer is")
    llm: str = _setting(
        "offline",
        "offline, openai:MODEL, anthropic:MODEL (or gemini, groq, mistral, openrouter), hf:NAME_OR_PATH, smollm2 or "
        "program:MODULE:OBJECT",
    )
    base_url: str = _setting("", "OpenAI-compatible server; empty: OPENAI_BASE_URL or OpenAI itself")
    base_url_by: str = ""
    """Not a setting: the folder of the workspace whose own file named ``base_url``; empty if the user did."""
    answers: str = _setting("auto", "auto, score (compare the options' log-probabilities) or generate")
    metric: str = _setting(
        "auto",
        "how good an answer is: auto (what fits the outputs), accuracy, f1, …, judge, judge-scale, or module:function",
    )
    read: str = _setting("auto", "what of a reply is the answer: auto, text, line, final, json:PATH, regex:PATTERN, …")
    least: float | None = _setting(
        None, "value from which an answer is right, where only right and wrong count; not set: 1, or .5", float
    )
    judge_llm: str = _setting("", "LLM of the metrics judge and judge-scale; empty: llm")
    judge_prompt: str = _setting("", "file with the judge's prompt; empty: a built-in one")
    judge_price_in: float | None = _setting(None, "as price_in, of judge_llm", float)
    judge_price_out: float | None = _setting(None, "as price_out, of judge_llm", float)
    max_tokens: int | None = _setting(
        None, "maximum tokens of an answer; not set: 64, or more where the outputs of the pool need them", int
    )
    temperature: float | None = _setting(
        None, "sampling temperature; not set: 0, or the model's own where it takes none", float
    )
    top_p: float | None = _setting(None, "share of the likeliest tokens to sample from; not set: 1", float)
    stop: tuple[str, ...] = _setting((), "texts that end an answer to a prompt of the pool", list)
    endpoint: str = _setting("auto", "auto (chat, or completions where it is missing), chat or completions")
    system_role: str = _setting(
        "system", "role of the first message on a chat server: system, developer, or user (then within the first turn)"
    )
    response_format: str = _setting("", "form of the answers to prompts of the pool: json, or schema:FILE")
    reasoning_effort: str = _setting("", "how long a reasoning model thinks: low, medium, high, …; empty: not sent")
    extra_body: str = _setting("", "further fields of every request to the server: a table, or JSON", dict)
    headers: str = _setting(
        "", "headers of every request to the server: a table; ${NAME} is a variable of the environment", dict
    )
    query_params: str = _setting(
        "", 'what follows the server\'s URL, such as api-version = "2024-10-21": a table, as headers', dict
    )
    context_tokens: int | None = _setting(None, "maximum tokens of a prompt; not set: the LLM's limit, if known", int)
    document_tokens: int | None = _setting(
        None, "calibration: tokens that each document of a query is cut to; not set: whole", int
    )
    concurrency: int = _setting(64, "maximum concurrent calls")
    timeout: float = _setting(60.0, "timeout of a call in seconds")
    attempts: int = _setting(
        6, "maximum attempts per call, unless the server is busy or away: with more than one it is waited for"
    )
    price_in: float | None = _setting(None, "price per million prompt tokens in USD; not set: unknown", float)
    price_out: float | None = _setting(None, "price per million generated tokens in USD; not set: unknown", float)
    prices_by: str = ""
    """Not a setting: the workspace's own file, if it alone names a price, or an LLM whose price the user's file may not
    mean."""
    encoder_price_by: str = ""
    """Not a setting: as ``prices_by``, of the encoder's price."""
    own_prompts: str = ""
    """Not a setting: the program that a lock names, which makes its own prompts."""
    told_by: str = ""
    """Not a setting: what the workspace's own file alone says of `TOLD`, as text."""
    seed: int = _setting(0, "random seed")
    engine: str = _setting(
        "inline", "where work over a whole pool runs: inline or ray (a cluster, or all cores of this machine)"
    )
    engine_address: str = _setting("", "Ray cluster: host:port, ray://host:port or auto; empty: one on this machine")
    engine_storage: str = _setting("", "folder or URI (s3://…) that all workers reach; empty: in the workspace")
    engine_places_by: str = ""
    """Not a setting: the workspace's own file, if it alone names the address or the storage."""
    policy_candidates: int | None = None
    """Not a setting: how many candidates ranking policies choose from, if not as many as they were trained with."""

    @property
    def answer_tokens(self) -> int:
        """The maximum tokens of an answer."""
        return self.max_tokens or ANSWER_TOKENS

    @property
    def full_precision(self) -> bool:
        """Whether the encoder always computes in float32, so that vectors do not depend on the processor's formats."""
        return self.dtype == "float32"

    @property
    def passages(self) -> bool:
        """Whether rows and queries are retrieved by their passages, too."""
        return self.retrieval_text == "passage"

    def check_places(self) -> None:
        """Raise `UsageError` if only a workspace's own file names a place that texts would be sent to."""
        if self.engine_places_by:
            raise UsageError(
                f"{self.engine_places_by} alone says where the pool is computed",
                f"move engine_address and engine_storage to {user_config()}, or give --engine-address",
            )

    @property
    def prompt_template(self) -> Template:
        """What writes the prompts: for a program, and for its recorded answers, what it is given. Raises `UsageError`
        if it is malformed; code is imported."""
        from ..prompting.function import function_template, program_template
        from ..prompting.template import FileTemplate, built_in

        if program := program_in(self.llm) or program_in(self.template):
            return program_template(program)
        if is_code(self.template):
            return function_template(self.template)
        source = self.template_text or built_in(self.template, self.prompt_format)
        return FileTemplate(source, self.instruction, self.answer_prefix)

    @property
    def reads(self) -> frozenset[str]:
        """The fields that every query must have, because the prompt that was judged reads them."""
        return self.prompt_template.reads if self.templated else frozenset()

    @property
    def reads_if_there(self) -> frozenset[str]:
        """Further fields, which the prompt reads of queries that have them."""
        return self.prompt_template.optional if self.templated else frozenset()

    @property
    def templated(self) -> bool:
        """Whether something else than `auto`, which reads no fields, writes the prompts."""
        return self.template != "auto" or self.template_text != "" or program_in(self.llm) != ""

    @property
    def prompted_by(self) -> str:
        """The template with its digest; empty where prompts are written as if nothing was set."""
        if program := program_in(self.llm):
            return f"program:{program} ({self.prompt_template.digest})"
        own = (self.template_text, self.instruction, self.answer_prefix)  # a lock brings a text with it
        usual = (self.template, self.prompt_format) == ("auto", "auto") and not any(own)
        return "" if usual else f"{self.template} ({self.prompt_template.digest})"


class Overrides(TypedDict, total=False):
    """The fields of `Settings` as keywords, except those that `Selector` takes by name."""

    encoder: str
    encoder_url: str
    encoder_price: float
    device: str
    dtype: str
    near_duplicate: float
    retrieval_text: str
    preselect: int
    order: Order
    template: str | Callable[..., Any]
    prompt_format: str
    instruction: str
    answer_prefix: str
    llm: str | Callable[..., Any]
    base_url: str
    answers: str
    metric: str | Callable[..., Any]
    read: str | Callable[..., Any]
    least: float
    judge_llm: str
    judge_prompt: str
    judge_price_in: float
    judge_price_out: float
    max_tokens: int
    temperature: float
    top_p: float
    stop: Sequence[str]
    endpoint: str
    system_role: str
    response_format: str
    reasoning_effort: str
    extra_body: Mapping[str, Any] | str
    headers: Mapping[str, str] | str
    query_params: Mapping[str, str] | str
    context_tokens: int
    document_tokens: int
    concurrency: int
    timeout: float
    attempts: int
    price_in: float
    price_out: float
    seed: int
    engine: str
    engine_address: str
    engine_storage: str


@dataclass(frozen=True, slots=True)
class Resolved(Reported):
    """Settings with the origin of each: ``flag``, an environment variable, a file, or ``default``."""

    kind = "config"
    settings: Settings
    origins: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The ``config --json`` contract: both by the settings' own names."""
        return {"kind": self.kind, "settings": knobs(self.settings), "origins": dict(self.origins)}


def knobs(settings: Settings) -> dict[str, Any]:
    """Every setting by name, as JSON has it, to be stored or shown: of a table in `HIDDEN` its names."""
    shown = {name: getattr(settings, name) for name in _DEFAULTS}
    return shown | {name: ", ".join(read_table(shown[name])) for name in HIDDEN} | {"stop": list(settings.stop)}


def about(name: str) -> str:
    """One line on what the setting means."""
    return next(str(f.metadata["about"]) for f in fields(Settings) if f.name == name)


def user_config() -> Path:
    """The user's own config file; ``ICL_CURATE_CONFIG`` overrides the path."""
    if path := os.environ.get(PREFIX + "CONFIG"):
        return Path(path)
    return _usual_folder() / CONFIG


def user_file(name: str) -> Path:
    """A file of the user's own, beside their config file; where that is ``/dev/null``, in the usual folder."""
    config = user_config().absolute()
    return (_usual_folder() if str(config) == os.devnull else config.parent) / name


def _usual_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "icl-curate"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "icl-curate"


def resolve(workspace: Path | None, flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Resolved:
    """Merge all layers; flags that are None were not given. Raises `UsageError` with all problems found."""
    environ = os.environ if environ is None else environ
    layers = _Layers()
    for name, value in _read(user_config()).items():
        layers.take(name, value, str(user_config()))
    users_own = dict(layers.values)
    if workspace is not None:
        layers.take_of(workspace, users_own)
    for name in _DEFAULTS:
        if (value := environ.get(PREFIX + name.upper())) is not None:
            layers.take(name, value, PREFIX + name.upper())
    for name, value in flags.items():
        if value is not None and not (isinstance(value, list) and not value):
            layers.take(name, value, "flag")
    layers.refuse()
    values, origins = layers.values, layers.origins
    if workspace is not None:
        values |= _marks(layers, users_own, workspace / CONFIG)
    if "template" in values:
        values["template_text"] = _template_text(values["template"], origins["template"], workspace)
    if "response_format" in values:
        by_workspace = workspace is not None and origins["response_format"] == str(workspace / CONFIG)
        base = workspace if workspace and by_workspace else Path()
        values["response_format"] = format_of(values["response_format"], base)
    settings = Settings(**values)
    check_settings(settings)
    return Resolved(settings, origins)


class _Layers:
    """What the layers say, a later one over an earlier one: the ``values`` that are set, the ``origins`` of all, and
    what is wrong with them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins = dict.fromkeys(_DEFAULTS, "default")
        self._problems: dict[str, str] = {}
        """With the fix of each."""

    def take(self, name: str, value: Any, origin: str) -> None:
        if (value := self._typed(name, value, origin)) is not None:
            self.values[name], self.origins[name] = value, origin

    def take_of(self, workspace: Path, users_own: Mapping[str, Any]) -> None:
        """What the workspace's own file says, which may be a stranger's: not what only the user may name (`NAMED`),
        and no price where the user has one."""
        origin = str(workspace / CONFIG)
        for name, given in _read(workspace / CONFIG).items():
            value = self._typed(name, given, origin)
            # nothing set, or the same value as the user's
            same = name in (*URLS, *PLACES) and value in ("", users_own.get(name, ""))
            if value is None or same or (name in PRICES and name in users_own):
                continue
            if name not in NAMED or not is_the_users(name, value, workspace):
                self.values[name], self.origins[name] = value, origin
            elif value != users_own.get(name, _DEFAULTS[name]):
                named = ", ".join(read_table(value)) if name in HIDDEN else repr(value)
                what = f"{origin}: {name} names {named}, which only you may: set it in {user_config()}"
                self._problems[what] = f"correct or remove {origin}"

    def refuse(self) -> None:
        """Raise `UsageError` if anything is wrong."""
        if self._problems:
            raise UsageError("; ".join(self._problems), "; ".join(dict.fromkeys(self._problems.values())))

    def _typed(self, name: str, value: Any, origin: str) -> Any:
        """The value, None if it is a problem."""
        told, fix = f"{origin}: ", f"correct or {'unset' if origin.startswith(PREFIX) else 'remove'} {origin}"
        if origin == "flag":
            told, fix = "", "icl-curate config"
        if name not in _DEFAULTS:
            self._problems[f"{told}unknown setting '{name}'{did_you_mean(name, _DEFAULTS, ',')}"] = fix
            return None
        try:
            if origin == "flag" and name in CODE and not isinstance(value, str):  # to give it is the consent to run it
                value = f"program:{name_of(value)}" if name == "llm" else name_of(value)
            return _typed(name, value)
        except UsageError as error:
            self._problems[f"{told}{error.what}"] = error.fix or fix
        except (TypeError, ValueError):
            self._problems[f"{told}{name} must be of type {KINDS[name].__name__}, not {value!r}"] = fix
        return None


def _marks(layers: _Layers, users_own: Mapping[str, Any], own: Path) -> dict[str, str]:
    """The fields that are no settings: what only the workspace's ``own`` file says of servers, prices, places and
    `TOLD`, so that the user is asked before it is followed."""
    values, origins = layers.values, layers.origins
    lent = {
        name
        for name, value in values.items()
        if origins[name] == str(own) and value != users_own.get(name, _DEFAULTS[name])
    }
    marks = {f"{name}_by": str(own.parent.resolve()) for name in URLS if name in lent}
    for by, priced, prices in (("prices_by", "llm", PRICES[:2]), ("encoder_price_by", "encoder", PRICES[2:3])):
        unsure = [str(user_config())] if priced in lent else []
        if any(name in lent or origins[name] in unsure for name in prices):
            marks[by] = str(own)
    if any(origins[name] == str(own) for name in PLACES):
        marks["engine_places_by"] = str(own)
    return marks | {"told_by": ", ".join(f"{name} {values[name]}" for name in TOLD if name in lent)}


def is_the_users(name: str, value: Any, workspace: Path = Path()) -> bool:
    """Whether the value of a setting in `NAMED` is one that only the user may name; an expression can run for ever."""
    if name in ("template", "llm"):
        return is_code(str(value)) if name == "template" else program_in(str(value)) != ""
    if name == "extra_body":
        return len(value) > TELLABLE
    if name == "response_format":
        file = schema_file(value, workspace)
        return file is not None and not file.resolve().is_relative_to(workspace.resolve())
    if name.startswith("judge"):
        return bool(value != "")
    if name in HIDDEN:
        return True
    return ":" in str(value) and not str(value).startswith("json:")


def with_template(settings: Settings, name: str) -> Settings:
    """The settings with a built-in template or a file. Raises `UsageError` if it cannot be read or is malformed."""
    text = _template_text(name, "", None)
    changed = replace(settings, template=name, template_text=text, prompt_format="auto")
    check_settings(changed)
    return changed


def _template_text(name: str, origin: str, workspace: Path | None) -> str:
    """The text of the template file that was named: on the command line from where the user is, in a config file from
    its folder; empty for a built-in template. A workspace's own file may name only files inside the workspace: another
    one would be sent to an LLM."""
    from ..prompting.template import names

    if name in names() or is_code(name):
        return ""
    own = str(workspace and workspace / CONFIG)
    path = (Path(origin).parent if origin in (str(user_config()), own) else Path()) / name
    if workspace is not None and origin == own and workspace.resolve() not in path.resolve().parents:
        raise UsageError(
            f"{origin}: template names {name!r}, outside the workspace, which only you may",
            f"--template {name} or set it in {user_config()}",
        )
    fix = f"name a file, or one of: {', '.join(names())}"
    shown = display_line(str(path))
    try:
        text = read_regular(path, MOST_TEMPLATE).decode()
    except (OSError, ValueError) as error:
        reason = "not UTF-8" if isinstance(error, ValueError) else (error.strerror or str(error))
        raise UsageError(f"cannot read the template {shown}: {reason}", fix) from error
    if not text.strip():
        raise UsageError(f"the template {shown} is empty", fix)
    return text


_DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(Settings) if f.metadata}
KINDS: Mapping[str, type] = {f.name: f.metadata["kind"] for f in fields(Settings) if f.metadata}
"""The type of each setting, if it has a value."""


def _read(path: Path) -> dict[str, Any]:
    """The content of a config file; empty if it does not exist or is ``/dev/null``."""
    if str(path) == os.devnull:
        return {}
    try:
        return tomllib.loads(read_regular(path, MOST_CONFIG).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", f"correct or remove {path}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of too many digits, nested too deeply
        raise UsageError(f"{path}: {error}", f"correct or remove {path}") from error


def _typed(name: str, value: Any) -> Any:
    kind = KINDS[name]
    if kind is list:
        return list_of(name, value)
    if kind is dict:
        return table_of(name, value)
    # numbers are texts in variables, and may be numpy's in Python
    taken: Any = {str: str, int: (str, Integral), float: (str, Real)}[kind]
    if isinstance(value, bool) or not isinstance(value, taken):
        raise TypeError
    if name in URLS and value:
        return base_url(name, value)
    if name in PLACES and KEYED.search(str(value).partition("?")[0]):
        fix = "give the place alone, and keys in the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise UsageError(f"{name} holds a user name or a key, which would be stored", fix)
    try:
        typed = kind(value)
    except OverflowError as error:
        raise ValueError from error
    if kind is float and not math.isfinite(typed):
        raise UsageError(f"{name} is {typed}", "give a finite number")
    return typed


ANSWERS = ("auto", "score", "generate")
"""Values of the setting ``answers``."""
ENDPOINTS = ("auto", "chat", "completions")
ONE_OF: Mapping[str, Sequence[str]] = {
    "order": ORDERS, "retrieval_text": ("input", "passage"), "answers": ANSWERS, "endpoint": ENDPOINTS,
    "system_role": ("system", "developer", "user"), "dtype": ("auto", "float32", "bfloat16", "float16"),
    "engine": ENGINES,
}  # fmt: skip
"""Settings that are one of some words."""
ONE_OR_MORE = ("preselect", "max_tokens", "concurrency", "attempts", "context_tokens", "document_tokens")
_EFFORT = re.compile(r"\w[\w-]{0,30}|")

_OR_LEAVE_OUT = ", or omit it if unknown"


def check_settings(settings: Settings) -> None:
    """Raise `UsageError` for a value that a setting may not have, whoever gave it."""
    if settings.answer_prefix != settings.answer_prefix.strip() or len(settings.answer_prefix.splitlines()) > 1:
        raise UsageError(
            f"answer_prefix is {settings.answer_prefix!r}", "use one line without blanks at its ends: The answer is"
        )
    if settings.template != "auto" and settings.prompt_format != "auto":
        raise UsageError(f"prompt_format is of the template auto, not of {settings.template}", "give one of the two")
    if (program := program_in(settings.llm)) and program != program_in(settings.template):
        for name in ("template", "prompt_format", "instruction", "answer_prefix"):
            if (value := getattr(settings, name)) != _DEFAULTS[name]:
                raise UsageError(
                    f"{name} is {value!r}, but the program {program} makes its own prompts",
                    f"set it to {_DEFAULTS[name]!r}, or name an LLM that gets these prompts: --llm openai:MODEL",
                )
    if is_code(settings.template):  # it is imported when prompts are written
        for name in ("instruction", "answer_prefix"):
            if getattr(settings, name):
                raise UsageError(f"{name} is not of {settings.template}, which writes all of a prompt", "omit it")
    elif (settings.template, settings.prompt_format, settings.template_text) != ("auto", "auto", ""):
        _ = settings.prompt_template.reads  # its head and its text are well-formed
    for name, allowed in ONE_OF.items():
        if (word := getattr(settings, name)) not in allowed:
            raise UsageError(f"{name} is '{word}'", f"use one of: {', '.join(allowed)}")
    if not _EFFORT.fullmatch(settings.reasoning_effort):
        raise UsageError(f"reasoning_effort is '{settings.reasoning_effort[:60]}'", "use one word, such as low")
    if settings.top_p is not None and not 0 < settings.top_p <= 1:
        raise UsageError(f"top_p is {settings.top_p}", "use a value above 0, at most 1" + _OR_LEAVE_OUT)
    if settings.temperature is not None and settings.temperature < 0:
        raise UsageError(f"temperature is {settings.temperature}", "use 0 or more" + _OR_LEAVE_OUT)
    if settings.k < 0:
        raise UsageError(f"k is {settings.k}", "use 0 or more shots")
    if not 0 <= settings.seed < MOST_SEED:
        raise UsageError(f"seed is {settings.seed}", "use a whole number from 0 to 2⁶²")
    if settings.timeout <= 0:
        raise UsageError(f"timeout is {settings.timeout}", "use more than 0 seconds")
    for name in ONE_OR_MORE:
        if (count := getattr(settings, name)) is not None and count < 1:
            raise UsageError(f"{name} is {count}", "use 1 or more" + _OR_LEAVE_OUT * (_DEFAULTS[name] is None))
    if not settings.judge_llm and (settings.judge_price_in, settings.judge_price_out) != (None, None):
        what = "judge_price_in and judge_price_out are of another LLM that judges, and judge_llm names none"
        raise UsageError(what, "--judge-llm SPEC; where --llm judges itself, --price-in and --price-out")
    if settings.least is not None and not 0 < settings.least <= 1:
        raise UsageError(f"least is {settings.least}", "use a value above 0, at most 1" + _OR_LEAVE_OUT)
    for name in PRICES:
        if (price := getattr(settings, name)) is not None and price < 0:
            raise UsageError(f"{name} is {price}", "use 0 or more" + _OR_LEAVE_OUT)
    if not 0 < settings.near_duplicate <= 1:  # what `index` takes is narrower
        raise UsageError(f"near_duplicate is {settings.near_duplicate}", "use a Jaccard similarity from .5 to 1")
