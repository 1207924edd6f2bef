"""Records as annotation, tracing and evaluation tools write them, as flat records of inputs and outputs.

A shape is recognised by its own keys, never by the name of a file: Label Studio (with `data` and `annotations`, and its
smaller JSON), Argilla, LangSmith, Langfuse, promptfoo, SQuAD and CommonsenseQA as published, and the demonstrations in
the saved state of a DSPy program.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .records import BadRecord

Flat = dict[str, Any] | BadRecord

KEYS = frozenset(
    {"annotations", "annotation_id", "responses", "outputs", "expectedOutput", "vars", "tests", "data", "demos"}
)
"""A record with none of these keys, and with no object in it, has no shape below."""

EXACT = ("equals", "icontains", "contains", "similar", "factuality", "model-graded-factuality")
"""promptfoo's assertions whose value is an answer."""


def recognised(record: Mapping[str, Any]) -> tuple[str, Sequence[Flat]] | None:
    """The name of the record's shape and the flat records in it; None if it has no known shape, which is to say that it
    is one itself."""
    if KEYS.isdisjoint(record) and not any(type(value) is dict for value in record.values()):
        return None
    for name, shape in SHAPES.items():
        if (found := shape(record)) is not None:
            return name, found
    return None


def _label_studio(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """A task with its annotations: the first that was not cancelled."""
    data, annotations = record.get("data"), record.get("annotations")
    if not (isinstance(data, Mapping) and isinstance(annotations, list)):
        return None
    done = [each for each in annotations if isinstance(each, Mapping) and not each.get("was_cancelled")]
    if not done:
        return [BadRecord("the task has no annotation")]
    values = [part.get("value") for part in done[0].get("result") or () if isinstance(part, Mapping)]
    spans = [value for value in values if isinstance(value, Mapping) and {"start", "end", "labels"} <= value.keys()]
    if spans:  # what is where in the text
        return [{"id": record.get("id"), **data, "output": _entities(spans)}]
    said = {
        key: [text for value in values if isinstance(value, Mapping) for text in _listed(value.get(key))]
        for key in ("choices", "text", "taxonomy")
    }
    texts = {key: [text for text in every if isinstance(text, str)] for key, every in said.items()}
    if texts["choices"]:
        return [{"id": record.get("id"), **data, "output": texts["choices"]}]
    if not (written := [*texts["text"], *texts["taxonomy"]]):
        return [BadRecord("the annotation has no choice and no text")]
    return [{"id": record.get("id"), **data, "output": ", ".join(written)}]


def _entities(spans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was marked in a text, one object for each label, in the order of the text."""
    entities = [
        {"text": span.get("text", ""), "type": label, "start": span["start"], "end": span["end"]}
        for span in spans
        for label in _listed(span["labels"])
    ]
    return sorted(entities, key=lambda entity: (str(type(entity["start"])), entity["start"]))


def _label_studio_small(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """The smaller JSON: what was annotated stands between the id and the annotator."""
    keys = list(record)
    if not {"annotation_id", "annotator", "id"} <= record.keys():
        return None
    between = keys[keys.index("id") + 1 : keys.index("annotator")]
    if len(between) != 1:
        return None
    value = record[between[0]]
    if isinstance(value, Mapping):
        value = value.get("choices", value.get("text"))
    spans = [part for part in _listed(value) if isinstance(part, Mapping) and {"start", "end", "labels"} <= part.keys()]
    rest = {key: value for key, value in record.items() if key != between[0]}
    return [{**rest, "output": _entities(spans) if spans else value}]


def _argilla(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """What most annotators said to the first question; the first of equals."""
    fields, responses = record.get("fields"), record.get("responses")
    if not (isinstance(fields, Mapping) and isinstance(responses, Mapping)):
        return None
    flat = {"id": record.get("id"), **fields, **_mapping(record.get("metadata"))}
    for given in responses.values():
        said = [each.get("value") for each in _listed(given) if isinstance(each, Mapping) and _submitted(each)]
        if said:
            (most, _), *_ = Counter(json.dumps(value, ensure_ascii=False) for value in said).most_common(1)
            return [{**flat, "output": json.loads(most)}]
    return [BadRecord("the record has no response")]


def _submitted(response: Mapping[str, Any]) -> bool:
    return bool(response.get("status", "submitted") == "submitted")


def _traced(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """LangSmith's examples (``inputs`` and ``outputs``) and Langfuse's items (``input`` and ``expectedOutput``)."""
    for asked, answered in (("inputs", "outputs"), ("input", "expectedOutput")):
        question, answer = record.get(asked), record.get(answered)
        if answered in record and isinstance(question, Mapping | str | list) and answer is not None:
            break
    else:
        return None
    if isinstance(question, str) and isinstance(answer, str) and (asked == "inputs" or "output" not in record):
        return None  # two plain columns
    rest = {key: value for key, value in record.items() if key not in (asked, answered)}
    if isinstance(question, Mapping) and isinstance(turns := question.get("messages"), list):
        said = _turns(answer)
        return [{**rest, **question, "messages": said if said[: len(turns)] == turns else [*turns, *said]}]
    return [{**rest, **_part(question, "input"), **_part(answer, "output")}]


def _turns(answer: Any) -> list[Any]:
    """The turns of an answer: messages (those of a graph begin with the question's), one message, or a text."""
    if isinstance(answer, Mapping) and "role" not in answer:
        answer = answer.get("messages") or next(iter(answer.values()), None)
    if isinstance(answer, list):
        return answer
    return [answer if isinstance(answer, Mapping) else {"role": "assistant", "content": answer}]


def _part(value: Any, field: str) -> dict[str, Any]:
    """One side as columns: a lone value under the name of the field, several under their own names."""
    if isinstance(value, Mapping):
        return {field: next(iter(value.values()))} if len(value) == 1 and "messages" not in value else dict(value)
    return {field: value}


def _promptfoo(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """A test case, or a file of settings with its test cases: the variables, and the first answer that is asserted."""
    if isinstance(record.get("tests"), list) and {"prompts", "providers"} & record.keys():
        return [flat for test in record["tests"] if isinstance(test, Mapping) for flat in _promptfoo(test) or ()]
    given = record.get("vars")
    if not isinstance(given, Mapping):
        return None
    for each in _listed(record.get("assert")):
        if isinstance(each, Mapping) and each.get("type") in EXACT and each.get("value") is not None:
            return [{**_part(given, "input"), "output": each["value"]}]
    return [BadRecord(f"the test asserts no answer ({', '.join(EXACT[:3])}, …)")]


def _squad(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """A whole file as published: articles, their paragraphs, and questions about each."""
    articles = record.get("data")
    if not (isinstance(articles, list) and articles and isinstance(articles[0], Mapping)):
        return None
    if "paragraphs" not in articles[0]:
        return None
    return [
        {
            "id": asked.get("id"),
            "title": article.get("title"),
            "context": paragraph.get("context"),
            "question": asked.get("question"),
            "answers": [answer.get("text") for answer in _listed(asked.get("answers")) if isinstance(answer, Mapping)],
        }
        for article in articles
        for paragraph in article.get("paragraphs") or ()
        for asked in paragraph.get("qas") or ()
    ]


def _commonsense_qa(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    question = record.get("question")
    if not (isinstance(question, Mapping) and "stem" in question):
        return None
    rest = {key: value for key, value in record.items() if key != "question"}
    return [{**rest, "question": question["stem"], "choices": question.get("choices")}]


def _dspy(record: Mapping[str, Any]) -> Sequence[Flat] | None:
    """The demonstrations of all predictors in the saved state of a program."""
    states = [state for state in record.values() if isinstance(state, Mapping) and isinstance(state.get("demos"), list)]
    if "demos" in record and isinstance(record["demos"], list):
        states.append(record)
    found = [demo for state in states for demo in state["demos"] if isinstance(demo, Mapping)]
    return [{key: value for key, value in demo.items() if key != "augmented"} for demo in found] if states else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


OF_LABELS = ("Label Studio", "Label Studio, smaller JSON", "Argilla")
"""Shapes in which a list as the output is a set of labels."""

SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Sequence[Flat] | None]] = {
    "Label Studio": _label_studio,
    "Label Studio, smaller JSON": _label_studio_small,
    "Argilla": _argilla,
    "inputs and outputs, as LangSmith and Langfuse have them": _traced,
    "promptfoo": _promptfoo,
    "SQuAD as published": _squad,
    "CommonsenseQA as published": _commonsense_qa,
    "a program of DSPy": _dspy,
}
