"""Options that several commands take, and groups of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.base.errors import UsageError
from . import values
from .help import MODELS, REQUEST, RUNNING, WORKSPACE
from .values import option

WorkspaceOption = Annotated[
    Path, option("--workspace", "-w", envvar="ICL_CURATE_WORKSPACE", help="Workspace folder.", panel=WORKSPACE)
]

JsonOption = Annotated[bool, option("--json", help="Print one JSON object to stdout.", panel=WORKSPACE)]

LLMOption = Annotated[
    str | None,
    option(
        "--llm",
        help="offline, openai:MODEL, anthropic:MODEL (or gemini, groq, mistral, openrouter), hf:NAME_OR_PATH, smollm2 "
        "or program:MODULE:OBJECT.",
        panel=MODELS,
        of=values.llms,
    ),
]

BaseURLOption = Annotated[str | None, option("--base-url", help="URL of an OpenAI-compatible server.", panel=MODELS)]

DeviceOption = Annotated[
    str | None, option("--device", help="auto, cpu, cuda or mps.", panel=MODELS, of=values.DEVICES)
]

ShotsOption = Annotated[int | None, typer.Option("-k", "--shots", help="Number of demonstrations per prompt.")]

MethodOption = Annotated[
    str | None, option("--method", "-m", help="Selection method of the demonstrations.", of=values.methods)
]

ColumnsOption = Annotated[
    list[str] | None,
    option(
        "--map",
        help="Map a field to a column, e.g. input=data.text, to several: 'input={premise} / {hypothesis}', "
        "output=toxic+threat, to the first that exists: 'input=body|text', or in some files alone: "
        "'old*.csv::input=text'; repeatable.",
        of=values.columns,
    ),
]

FieldOption = Annotated[
    list[str] | None, typer.Option("--field", help="A further field of the query, NAME=VALUE; repeatable.")
]

RankingOption = Annotated[str, option(help="Retrieval that ranks them: dense or bm25.", of=values.RANKINGS)]

SeedOption = Annotated[int | None, option("--seed", help="Random seed.", panel=MODELS)]

OrderOption = Annotated[
    str | None,
    option("--order", help="Demonstration order: best-last (next to the query) or best-first.", of=values.orders),
]

AnswersOption = Annotated[
    str | None,
    option("--answers", help="How the LLM answers: auto, score or generate.", panel=MODELS, of=values.answers),
]

ConcurrencyOption = Annotated[int | None, option("--concurrency", "-j", help="Maximum concurrent calls.", panel=MODELS)]

TemplateOption = Annotated[
    str | None,
    option(
        "--template",
        help="How prompts are written: a built-in template (icl-curate template list), a file, or module:function.",
        panel=MODELS,
        of=values.templates,
    ),
]

PromptFormatOption = Annotated[
    str | None,
    option(
        "--prompt-format",
        help="auto, Q-A, QO-A, SQO-A, SQ-A, or a text with {input} {options} {context}.",
        panel=MODELS,
        of=values.prompt_formats,
    ),
]

AnswerPrefixOption = Annotated[
    str | None, option("--answer-prefix", help='Text before every answer: "The answer is".', panel=MODELS)
]

LimitOption = Annotated[int | None, typer.Option("--limit", help="Use only the first N validation queries.", min=1)]

RowsOption = Annotated[int, typer.Option("-n", "--rows", min=0, help="Maximum number of rows to show.")]

MaxCallsOption = Annotated[int | None, option("--max-calls", help="Maximum number of calls.", panel=RUNNING)]

MaxCostOption = Annotated[float | None, option("--max-cost", help="Maximum cost in USD.", panel=RUNNING)]

PriceInOption = Annotated[
    float | None, option("--price-in", help="Price per million prompt tokens (USD).", panel=RUNNING)
]

PriceOutOption = Annotated[
    float | None, option("--price-out", help="Price per million generated tokens (USD).", panel=RUNNING)
]

DryRunOption = Annotated[bool, option("--dry-run", help="Show what would be done without doing it.", panel=RUNNING)]

BackgroundOption = Annotated[
    bool, option("--background", help="Run as a background job; list jobs with: icl-curate jobs.", panel=RUNNING)
]

JobArgument = Annotated[int | None, typer.Argument(help="Job number (default: the latest).")]

ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]

ReasonOption = Annotated[str, typer.Option("--reason", help="Reason to record in the history.")]

DocumentTokensOption = Annotated[
    int | None,
    typer.Option("--document-tokens", help="Cut a query's documents to this many tokens (default: whole).", min=1),
]

SetArmOption = Annotated[
    str,
    option(
        "--arm",
        help="Fine-tuning set from the rounds of this arm: full, answers or plain.",
        of=("full", "answers", "plain"),
    ),
]

BalanceOption = Annotated[
    bool, typer.Option("--balance", help="Keep at most as many answers in the fine-tuning set as it corrects.")
]

DEFAULT_WORKSPACE = Path(".icl-curate")


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What goes into each request to the LLM, as settings by name; None or empty if not given on the command line."""

    endpoint: Annotated[
        str | None, option("--endpoint", help="auto, chat or completions.", panel=REQUEST, of=values.endpoints)
    ] = None
    max_tokens: Annotated[int | None, option("--max-tokens", help="Maximum tokens of an answer.", panel=REQUEST)] = None
    temperature: Annotated[
        float | None, option("--temperature", help="Sampling temperature (default: 0).", panel=REQUEST)
    ] = None
    top_p: Annotated[
        float | None,
        option("--top-p", help="Share of the likeliest tokens sampled from (default: 1).", panel=REQUEST),
    ] = None
    stop: Annotated[list[str] | None, option("--stop", help="Text that ends an answer; repeatable.", panel=REQUEST)] = (
        None
    )
    response_format: Annotated[
        str | None,
        option("--response-format", help="json, or schema:FILE (JSON Schema).", panel=REQUEST, of=("json", "schema:")),
    ] = None
    reasoning_effort: Annotated[
        str | None,
        option(
            "--reasoning-effort",
            help="How long a reasoning model thinks: low, medium, high, …",
            panel=REQUEST,
            of=("minimal", "low", "medium", "high"),
        ),
    ] = None
    extra_body: Annotated[
        str | None, option("--extra-body", help="Further fields of the body, as a JSON object.", panel=REQUEST)
    ] = None
    headers: Annotated[
        list[str] | None,
        option("--header", help="'NAME: ${VARIABLE}', from the environment; repeatable.", panel=REQUEST),
    ] = None
    query_params: Annotated[
        list[str] | None,
        option("--query-param", help="NAME=VALUE behind the URL, as api-version; repeatable.", panel=REQUEST),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LLMOptions(RequestOptions):
    """LLM settings by name; None if not given on the command line."""

    llm: LLMOption = None
    base_url: BaseURLOption = None
    answers: AnswersOption = None
    seed: SeedOption = None
    device: DeviceOption = None
    concurrency: ConcurrencyOption = None
    template: TemplateOption = None
    prompt_format: PromptFormatOption = None
    answer_prefix: AnswerPrefixOption = None
    price_in: PriceInOption = None
    price_out: PriceOutOption = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where work over the whole pool runs; None if not given on the command line."""

    engine: Annotated[
        str | None,
        option(
            "--engine",
            help="Where the pool is computed: inline or ray (a cluster).",
            panel=RUNNING,
            of=("inline", "ray"),
        ),
    ] = None
    engine_address: Annotated[
        str | None, option("--engine-address", help="Ray cluster: host:port, ray://host:port or auto.", panel=RUNNING)
    ] = None
    engine_storage: Annotated[
        str | None, option("--engine-storage", help="Folder or URI (s3://…) that all workers reach.", panel=RUNNING)
    ] = None


@dataclass(frozen=True, kw_only=True)
class PaidOptions:
    """Budget of work that calls the LLM, where it runs and how its result is printed."""

    max_calls: MaxCallsOption = None
    max_cost: MaxCostOption = None
    background: BackgroundOption = False
    dry_run: DryRunOption = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Graded:
    """How good an answer is, as settings by name; None if not given on the command line."""

    metric: Annotated[
        str | None,
        option(
            help="How good an answer is: auto (what fits the outputs), accuracy, f1, json-f1, …, judge or judge-scale "
            "(an LLM says), or module:function of your own.",
            of=values.metrics,
        ),
    ] = None
    read: Annotated[
        str | None,
        option(
            help="What of a reply is the answer: auto, text, line, last-line, number, final, letter, json, json:PATH, "
            "regex:PATTERN, or module:function of your own.",
            of=values.readers,
        ),
    ] = None
    least: Annotated[
        float | None,
        option(help="Value from which an answer is right, where only right and wrong count."),
    ] = None
    judge_llm: Annotated[
        str | None,
        option("--judge-llm", help="LLM of the metrics judge and judge-scale (default: --llm).", of=values.llms),
    ] = None
    judge_prompt: Annotated[
        str | None,
        option(
            "--judge-prompt",
            help="File with its prompt: a text with {question} {accepted} {answer}, and, if you like, "
            "{context} {options}.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class GradingOptions(Graded):
    """The same for commands that grade, with the prices of an LLM that judges."""

    judge_price_in: Annotated[
        float | None,
        option("--judge-price-in", help="Price per million prompt tokens of --judge-llm (USD)."),
    ] = None
    judge_price_out: Annotated[
        float | None,
        option("--judge-price-out", help="Price per million generated tokens of --judge-llm (USD)."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EvidenceOptions(Graded):
    """Which stored answers count: those to prompts of this template, graded like this."""

    template: TemplateOption = None


NO_LLM_OPTIONS, NO_PAID_OPTIONS, AS_SET = LLMOptions(), PaidOptions(), GradingOptions()
AS_STORED = EvidenceOptions()
USUAL_REQUEST = RequestOptions()
CONFIGURED_ENGINE = EngineOptions()


def alone(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that is `spread` be what the name of a group does if no command below it is named."""

    @wraps(command)
    def bare(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            command(**given)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _taking(bare, [context, *inspect.signature(command).parameters.values()])


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a dataclass of options as one parameter; Typer sees its fields as separate options, and
    annotations that are evaluated once. An option of the command itself stands before one of that name in a group.
    Raises `UsageError` for a number that is not finite."""
    plain = inspect.signature(command, eval_str=True).parameters
    kinds = {name: parameter.annotation for name, parameter in plain.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    own = plain.keys() - groups.keys()

    @wraps(command)
    def gathered(**given: Any) -> None:
        for parameter in shown:
            if isinstance(value := given.get(parameter.name), float) and not math.isfinite(value):
                declared = parameter.annotation.__metadata__[0].default  # where Typer keeps the first name
                name = declared if isinstance(declared, str) else f"--{parameter.name.replace('_', '-')}"
                raise UsageError(f"{name} is {value}", "give a finite number")
        for name, group in groups.items():
            names = {field.name for field in fields(group)} - own
            given[name] = group(**{field: given.pop(field) for field in names})
        command(**given)

    shown: list[inspect.Parameter] = []
    for name, parameter in plain.items():
        if name in groups:
            theirs = inspect.signature(groups[name], eval_str=True).parameters.values()
            shown += [one for one in theirs if one.name not in own]
        else:
            shown.append(parameter)
    return _taking(gathered, shown)


def _taking(function: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The function with the parameters that Typer is to see."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    function.__annotations__ = {}
    return function
