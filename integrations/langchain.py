"""LangChain: demonstrations for a few-shot prompt template.

from icl_curate.integrations.langchain import CurateExampleSelector

examples = CurateExampleSelector(".icl-curate", method="dense", k=5)
prompt = FewShotPromptTemplate(
    example_selector=examples,
    example_prompt=PromptTemplate.from_template("Question: {input}\\nAnswer: {output}"),
    suffix="Question: {input}\\nAnswer:", input_variables=["input"],
)

A pool is judged for a prompt by its name, as ``--template module:object``, or for a chain, as ``--llm
program:module:object``: `as_template` and `as_program` are found by the type of the object.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.load import dumps
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import StringPromptValue
from langchain_core.prompts import (
    BasePromptTemplate,
    ChatPromptTemplate,
    FewShotChatMessagePromptTemplate,
    FewShotPromptTemplate,
    FewShotPromptWithTemplates,
    MessagesPlaceholder,
)
from langchain_core.runnables import Runnable, RunnableSequence

from ..engine.base.errors import UsageError
from ..engine.llm.types import Reply
from ..engine.pool.records import Query
from ..engine.select.selector import Selected, Selector, besides
from . import NOTHING, asked, digest_of


class CurateExampleSelector(BaseExampleSelector):
    """Examples from a workspace, as dictionaries with ``input_key``, ``output_key``, ``options``, ``context``,
    ``history`` (the messages before the input), ``source`` and ``id``; the best comes last, next to the question,
    unless the setting ``order`` says otherwise.

    ``input_key`` is also the variable of the prompt that holds the question; of its other variables ``context``,
    ``options`` and ``history`` belong to it. ``selection`` is what `Selector` takes:
    ``method``, ``k`` and settings by name. Raises what `Selector` raises.
    """

    def __init__(
        self, workspace: Path | str, *, input_key: str = "input", output_key: str = "output", **selection: Any
    ) -> None:
        self.selector = Selector(workspace, **selection)
        self.input_key, self.output_key = input_key, output_key

    def add_example(self, example: dict[str, str], *, new_label: bool = False) -> None:
        """Add a demonstration to the workspace, see `Selector.add`; keys other than the two are its further fields."""
        text, output = (_told(example, key, "example") for key in (self.input_key, self.output_key))
        rest = {key: value for key, value in example.items() if key not in (self.input_key, self.output_key)}
        self.selector.add(text, output, new_label=new_label, **rest)

    def select_examples(self, input_variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The demonstrations for the question among the variables of the prompt."""
        return self._examples(self.selector.select(self._asked(input_variables)))

    async def aselect_examples(self, input_variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """`select_examples`, in a thread."""
        return self._examples(await self.selector.aselect(self._asked(input_variables)))

    def _asked(self, variables: Mapping[str, Any]) -> Query:
        return asked(str(_told(variables, self.input_key, "prompt")), variables, self.input_key)

    def _examples(self, best_first: list[Selected]) -> list[dict[str, Any]]:
        shown = best_first if self.selector.settings.order == "best-first" else best_first[::-1]
        return [
            {
                **deepcopy(NOTHING),
                **besides(shot.demonstration),
                "source": shot.demonstration.source,
                "id": shot.demonstration.id,
                self.input_key: shot.demonstration.input,
                self.output_key: shot.demonstration.output,
            }
            for shot in shown
        ]


def _told(given: Mapping[str, Any], key: str, what: str) -> Any:
    if given.get(key) is None:
        raise UsageError(f"the {what} has no '{key}', but {', '.join(map(repr, given)) or 'nothing'}", KEYS)
    return given[key]


KEYS = "CurateExampleSelector(…, input_key=…, output_key=…) says which keys are meant"

FEW_SHOT = FewShotPromptTemplate | FewShotPromptWithTemplates | FewShotChatMessagePromptTemplate
ROLES = {"human": "user", "ai": "assistant"}
"""Names of roles that are others in LangChain."""


class _Own:
    """A prompt or a chain that is given a query and shots, which are examples: of its few-shot prompts, in the place of
    theirs, else in the variable ``examples``, there as messages if that is a placeholder of messages."""

    def __init__(self, runnable: Runnable[Any, Any], examples: str, input_key: str, output_key: str) -> None:
        self.runnable, self.examples, self.input_key, self.output_key = runnable, examples, input_key, output_key
        first = runnable.first if isinstance(runnable, RunnableSequence) else runnable
        variables = set(first.input_variables) if isinstance(first, BasePromptTemplate) else set()
        if isinstance(first, BasePromptTemplate) and examples not in variables and not _few_shot(first):
            raise UsageError(
                f"the prompt shows no demonstrations: it has neither a few-shot prompt nor a variable '{examples}'",
                f"add MessagesPlaceholder({examples!r}), or name the variable: as_template(prompt, examples=…)",
            )
        self.as_messages = any(
            isinstance(part, MessagesPlaceholder) and part.variable_name == examples
            for part in (first.messages if isinstance(first, ChatPromptTemplate) else ())
        )
        self.icl_reads = tuple(sorted(variables - {examples, input_key, *NOTHING}))
        self.icl_state = digest_of(dumps(runnable))

    def filled(self, shots: Sequence[Mapping[str, Any]]) -> Runnable[Any, Any]:
        """The same with the shots as its examples."""
        return _filled(self.runnable, [self._example(shot) for shot in shots])

    def values(self, query: Mapping[str, Any], shots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The variables of the prompt."""
        given = {**query, self.input_key: query["input"]}
        if self.as_messages:
            roles = (("user", "input"), ("assistant", "output"))
            return {**given, self.examples: [{"role": r, "content": shot[name]} for shot in shots for r, name in roles]}
        return {**given, self.examples: [self._example(shot) for shot in shots]}

    def _example(self, shot: Mapping[str, Any]) -> dict[str, Any]:
        return {**shot, self.input_key: shot["input"], self.output_key: shot["output"]}


def _few_shot(prompt: Any) -> bool:
    parts = prompt.messages if isinstance(prompt, ChatPromptTemplate) else [prompt]
    return any(isinstance(part, FEW_SHOT) for part in parts)


def _filled(step: Any, examples: list[dict[str, Any]]) -> Any:
    """A copy whose few-shot prompts have these examples."""
    if isinstance(step, FEW_SHOT):
        return step.model_copy(update={"examples": examples, "example_selector": None})
    if isinstance(step, ChatPromptTemplate):
        return step.model_copy(update={"messages": [_filled(part, examples) for part in step.messages]})
    if isinstance(step, RunnableSequence):
        return RunnableSequence(*(_filled(part, examples) for part in step.steps))
    return step


class _Prompt(_Own):
    """See `as_template`."""

    def __call__(self, query: Mapping[str, Any], shots: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
        written = self.filled(shots).invoke(self.values(query, shots))
        if isinstance(written, StringPromptValue):
            return str(written.text)
        return [
            {"role": getattr(turn, "role", ROLES.get(turn.type, turn.type)), "content": turn.content}
            for turn in written.to_messages()
        ]


class _Program(_Own):
    """See `as_program`."""

    async def __call__(self, query: Mapping[str, Any], shots: Sequence[Mapping[str, Any]]) -> Reply:
        used = _Used()
        said = await self.filled(shots).ainvoke(self.values(query, shots), config={"callbacks": [used]})
        said = said.content if isinstance(said, BaseMessage) else said
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
        return Reply(text, used.tokens_in, used.tokens_out, calls=used.calls)


class _Used(BaseCallbackHandler):
    """Counts the calls of LLMs and their tokens."""

    def __init__(self) -> None:
        self.calls = self.tokens_in = self.tokens_out = 0
        self._lock = threading.Lock()

    def on_llm_end(self, response: Any, **_: Any) -> None:
        """An LLM has answered."""
        with self._lock:
            self.calls += 1
            for generated in (one for several in response.generations for one in several[:1]):
                usage = getattr(getattr(generated, "message", None), "usage_metadata", None) or {}
                self.tokens_in += usage.get("input_tokens", 0)
                self.tokens_out += usage.get("output_tokens", 0)


def as_template(
    prompt: BasePromptTemplate[Any], examples: str = "examples", *, input_key: str = "input", output_key: str = "output"
) -> Callable[..., str | list[dict[str, Any]]]:
    """A prompt as a function for ``--template``. The shots are the examples of its few-shot prompts, in the place of
    theirs, or its variable ``examples``; ``input_key`` is the variable with the question, and with ``output_key`` that
    of an example; its other variables are fields of the query. Raises `UsageError` if it shows no examples."""
    if not isinstance(prompt, BasePromptTemplate):
        raise UsageError(
            f"{type(prompt).__name__} is no prompt of LangChain", "--llm program:module:object for a chain"
        )
    return _Prompt(prompt, examples, input_key, output_key)


def as_program(
    runnable: Runnable[Any, Any], examples: str = "examples", *, input_key: str = "input", output_key: str = "output"
) -> Callable[..., Awaitable[Reply]]:
    """A chain, or any runnable, as a program for ``--llm program:``: its answer is the text that ``ainvoke`` returns.
    The shots go where those of `as_template` go if a prompt comes first, else into the variable ``examples``. The calls
    and tokens of its LLMs are counted. Raises `UsageError` if its prompt shows no examples."""
    return _Program(runnable, examples, input_key, output_key)
