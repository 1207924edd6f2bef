"""LangChain: demonstrations for a few-shot prompt template.

from icl_curate.integrations.langchain import CurateExampleSelector

examples = CurateExampleSelector(".icl-curate", method="dense", k=5)
prompt = FewShotPromptTemplate(
    example_selector=examples,
    example_prompt=PromptTemplate.from_template("Question: {input}\\nAnswer: {output}"),
    suffix="Question: {input}\\nAnswer:", input_variables=["input"],
)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector

from ..engine.pool.records import Query
from ..engine.select.selector import Selected, Selector, besides
from . import NOTHING, asked


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

    def add_example(self, example: dict[str, str]) -> None:
        """Add a demonstration to the workspace; keys other than the two are its further fields."""
        rest = {key: value for key, value in example.items() if key not in (self.input_key, self.output_key)}
        self.selector.add(example[self.input_key], example[self.output_key], **rest)

    def select_examples(self, input_variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The demonstrations for the question among the variables of the prompt."""
        return self._examples(self.selector.select(self._asked(input_variables)))

    async def aselect_examples(self, input_variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """`select_examples`, in a thread."""
        return self._examples(await self.selector.aselect(self._asked(input_variables)))

    def _asked(self, variables: Mapping[str, Any]) -> Query:
        return asked(str(variables[self.input_key]), variables, self.input_key)

    def _examples(self, best_first: list[Selected]) -> list[dict[str, Any]]:
        shown = best_first if self.selector.settings.order == "best-first" else best_first[::-1]
        return [
            {
                **NOTHING,
                **besides(shot.demonstration),
                "source": shot.demonstration.source,
                "id": shot.demonstration.id,
                self.input_key: shot.demonstration.input,
                self.output_key: shot.demonstration.output,
            }
            for shot in shown
        ]
