"""Faults of outputs with parts: JSON values, entities, tool calls, sets of labels.

What a pool's outputs have in common is counted, never declared: at each path the types, the fields of an object and the
values of a field. A row is named for what at most `RARE` of the others share with it. An optional field may be absent
at any rate from 0 to 1; it is absent from at most r of the rows with probability r, and then from r / 2 of them on
average, so the rule names r² / 2 of the sound rows for each such field, 1 in 5,000. Up to `1 - MOST` it is a doubt.
Names that differ by capitals and signs alone (``userId``, ``user_id``) and never stand in one object are one field, and
its rarer spelling a fault even in many rows, for a source may have a schema of its own.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ..grading.metrics import MOST
from ..grading.structured import json_in, labels_in
from ..pool.records import Demonstration
from .results import Fault, Kind

RARE = 0.02
"""Share of the rows up to which what they have apart from the others is a fault."""

LEAST = 30
"""Fewer outputs have nothing in common that can be told from chance."""

FREQUENT, SHORT, MOST_LABELS = 5, 60, 300
"""Rows that share a value of a closed set or a field's name, characters of such a value, and the number of them."""

ALIKE = 0.8
"""Similarity (difflib) from which on a rare value is a misspelling of a frequent one."""

MINOR = 0.5
"""How common one spelling of a field is at most, beside another one of it, to be wrong."""

MOST_PARTS, DEEP = 2_000, 100
"""Parts of an output that are looked at, and how deep they may be nested."""

COPIED, MISSPELT, AGREE = 0.95, 0.9, 10
"""Chance that a text or span taken from the input is right, and a frequent value for one spelled like it; entities of
one text whose common type is held against another one."""


def parsed(text: str) -> Any:
    """The object or list that a text is as JSON; None for any other text, and one nested more than `DEEP`."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    if text.count("[") + text.count("{") > DEEP:
        steps = ((character in "[{") - (character in "]}") for character in text)
        if max(accumulate(steps)) > DEEP:
            return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def are_json(values: Sequence[Any]) -> bool:
    """Whether the outputs of a pool, as `parsed`, are JSON."""
    return len(values) >= LEAST and sum(value is not None for value in values) >= MOST * len(values)


def is_usual(said: Sequence[bool], verified: Sequence[bool]) -> bool:
    """Whether something holds of nearly all outputs of a pool, of which it is ``said``; or of nearly all ``verified``
    ones, if there are enough, and of most of the pool's: outputs of many rows may be wrong in one way."""
    if len(verified) < LEAST:
        return len(said) >= LEAST and sum(said) >= MOST * len(said)
    return sum(verified) >= MOST * len(verified) and sum(said) > len(said) / 2


def structure_faults(
    rows: Sequence[Demonstration], values: Sequence[Any], verified: Sequence[Demonstration] = ()
) -> Iterator[Fault]:
    """Faults of rows whose outputs are JSON; ``values``: their outputs, `parsed`."""
    shape = Shape([value for value in values if value is not None])
    good = sum(value is not None for value in values)
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        if value is None:
            told = f"is no JSON; {good:,} of {len(rows):,} outputs are"
            yield Fault(place, shape.kind, True, told, *_within(row.output, shape))
        else:
            yield from (Fault(place, shape.kind, *fault) for fault in shape.faults(value))
            yield from (Fault(place, "call", *fault) for fault in _undeclared(row, value))
    right = [parsed(row.output) for row in verified]
    if shape.of_entities:
        yield from entity_faults(rows, values, verified, right)
    else:
        yield from copied_faults(rows, values, verified, right, shape.kind)


def _within(text: str, shape: Shape) -> tuple[str, float]:
    """The JSON that stands in a text, if it is like that of the others, and the chance that it is what was meant."""
    try:
        value = json.loads(text_of(json_in(text)))
    except (ValueError, RecursionError):
        return "", 0.0
    return ("", 0.0) if any(shape.faults(value)) else (text_of(value), COPIED)


def text_of(value: Any) -> str:
    """A value as `index` writes it."""
    return json.dumps(value, ensure_ascii=False, default=_plain_number)


def _plain_number(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def _type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def walk(value: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Each part of a value: its path, the object or list that it is in, its key there, and itself. The arguments of a
    call are at the path ``NAME()``, for each tool has its own."""
    parts: list[tuple[str, Any, Any, Any]] = [("", None, None, value)]
    for path, whole, key, part in parts:
        yield path, whole, key, part
        if len(parts) > MOST_PARTS:
            continue
        if isinstance(part, dict):
            name = part.get("name")
            for own, inner in part.items():
                call = own == "arguments" and isinstance(name, str)
                parts.append((f"{name}()" if call else f"{path}.{own}".lstrip("."), part, own, inner))
        elif isinstance(part, list):
            parts += ((f"{path}[]", part, i, inner) for i, inner in enumerate(part))


Told = tuple[bool, str, str, float]
"""Whether it is a fault or a doubt, the evidence, the corrected output if there is one, and its chance."""


class Shape:
    """What ``values``, JSON objects and lists, have in common."""

    def __init__(self, values: Sequence[Any]) -> None:
        types: dict[str, Counter[str]] = defaultdict(Counter)
        fields: dict[str, Counter[str]] = defaultdict(Counter)
        texts: dict[str, Counter[str]] = defaultdict(Counter)
        twice: dict[str, set[str]] = defaultdict(set)
        for value in values:
            for path, _, _, part in walk(value):
                types[path][_type(part)] += 1
                if isinstance(part, dict):
                    fields[path].update(part.keys())
                    twice[path].update(name for name, count in Counter(map(_bare, part)).items() if count > 1)
                elif isinstance(part, str):
                    texts[path][part] += 1
        self._types = {path: counts for path, counts in types.items() if counts.total() >= LEAST}
        self._objects = {path: counts["an object"] for path, counts in types.items()}
        self._fields = {path: counts for path, counts in fields.items() if self._objects[path] >= LEAST}
        self._closed = {path: often for path, counts in texts.items() if (often := ClosedSet(counts)).values}
        self._usual = {path: _usual_names(counts, twice[path]) for path, counts in self._fields.items()}
        self._had: dict[str, Counter[str]] = defaultdict(Counter)
        for path, counts in self._fields.items():
            for key, count in counts.items():
                self._had[path][self._usual[path].get(key, key)] += count
        self._known = {path: _frequent_fields(counts, self._objects[path]) for path, counts in self._had.items()}
        members, count = fields["[]"], self._objects.get("[]", 0)
        self.of_entities = count > 0 and min(members["text"], members["type"]) >= MOST * count
        self.kind: Kind = (
            "call" if count > 0 and min(members["name"], members["arguments"]) >= MOST * count else "schema"
        )

    def faults(self, value: Any) -> Iterator[Told]:
        """What sets one value apart from the others."""
        for path, whole, key, part in walk(value):
            yield from self._of_type(value, path, whole, key, part)
            if isinstance(part, dict) and path in self._fields:
                yield from self._of_fields(value, path, part)
            elif isinstance(part, str) and path in self._closed:
                for sure, told, near in self._closed[path].faults(part, _at(path)):
                    yield sure, told, *((_with(value, whole, key, near), MISSPELT) if near else ("", 0.0))

    def _of_type(self, value: Any, path: str, whole: Any, key: Any, part: Any) -> Iterator[Told]:
        counts = self._types.get(path)
        if counts is None or _type(part) == (usual := counts.most_common(1)[0][0]) or usual == "null":
            return
        sure = counts[usual] >= (1 - RARE) * counts.total()
        if sure or counts[usual] >= MOST * counts.total():
            told = f"{_at(path)} is {_type(part)}; {counts[usual]:,} of {counts.total():,} are {usual}"
            other = None if whole is None else _as_type(part, usual)
            yield (
                sure and part is not None,
                told,
                *(("", 0.0) if other is None else (_with(value, whole, key, other), MISSPELT)),
            )

    def _of_fields(self, value: Any, path: str, part: Mapping[str, Any]) -> Iterator[Told]:
        counts, had, frequent, objects = self._fields[path], self._had[path], self._known[path], self._objects[path]
        few, inside = _are_fields(counts, objects), f" of '{path}'" if path else ""
        usual = {key: self._usual[path].get(key, key) for key in part}
        lacking = [key for key in frequent if key not in usual.values() and had[key] >= MOST * objects]
        if other := [key for key in part if usual[key] != key]:
            told = f"field '{other[0]}'{inside} is in {counts[other[0]]:,} of {objects:,}, "
            told += f"'{usual[other[0]]}' in {counts[usual[other[0]]]:,}"
            more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
            renamed = {usual[own]: inner for own, inner in part.items()}
            whole = renamed.keys() <= frequent and not lacking  # the right spelling of a rare name may be as rare
            yield True, told + more, *((text_of(_swapped(value, part, renamed)), MISSPELT) if whole else ("", 0.0))
        unknown = [key for key in part if usual[key] == key and key not in frequent]
        for key in unknown:
            near = spelled_like(key, lacking) if lacking else ""
            if not near and (counts[key] >= FREQUENT or not few):
                continue  # an optional field
            if near:
                lacking.remove(near)
            corrected = {near if own == key else own: inner for own, inner in part.items()} if near else None
            told = f"field '{key}'{inside} is in {counts[key]:,} of {objects:,}"
            yield (
                True,
                told + (f", '{near}' in {counts[near]:,}" if near else ""),
                *((text_of(_swapped(value, part, corrected)), MISSPELT) if corrected else ("", 0.0)),
            )
        for key in lacking:
            told = f"field '{key}'{inside} is missing; {had[key]:,} of {objects:,} have it"
            yield had[key] >= (1 - RARE) * objects, told, "", 0.0


@lru_cache(10_000)
def _bare(name: str) -> str:
    """The name of a field without capitals and signs."""
    return "".join(filter(str.isalnum, name.casefold())) or name


def _usual_names(counts: Counter[str], twice: Container[str]) -> dict[str, str]:
    """The usual spelling of a field by its rarer ones; ``twice``: bare names that stand twice in one object."""
    spelled: dict[str, list[str]] = defaultdict(list)
    for name, _ in counts.most_common():
        spelled[_bare(name)].append(name)
    return {
        other: usual
        for bare, (usual, *others) in spelled.items()
        if bare not in twice and counts[usual] >= FREQUENT
        for other in others
        if counts[other] <= MINOR * counts[usual]
    }


def _frequent_fields(counts: Counter[str], objects: int) -> frozenset[str]:
    return frozenset(key for key, count in counts.items() if count > RARE * objects)


def _are_fields(counts: Counter[str], objects: int) -> bool:
    """Whether the keys of objects are fields, and not data of their own such as names."""
    return sum(count for count in counts.values() if count < FREQUENT) <= RARE * objects


def _at(path: str) -> str:
    return f"field '{path}'" if path else "the output"


def _with(value: Any, whole: Any, key: Any, other: Any) -> str:
    """The text of a value in which the part of this ``key`` in ``whole`` is another."""
    changed = {**whole, key: other} if isinstance(whole, dict) else [*whole[:key], other, *whole[key + 1 :]]
    return text_of(_swapped(value, whole, changed))


def _swapped(value: Any, part: Any, other: Any) -> Any:
    """The value with another object or list in the place of one."""
    if value is part:
        return other
    if isinstance(value, dict):
        return {key: _swapped(inner, part, other) for key, inner in value.items()}
    return [_swapped(inner, part, other) for inner in value] if isinstance(value, list) else value


def _as_type(value: Any, wanted: str) -> Any:
    """A number written as a text, or the other way round; None if it cannot be."""
    if wanted == "a text" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if wanted == "a number" and isinstance(value, str):
        try:
            number = json.loads(value)
        except ValueError:
            return None
        return number if isinstance(number, int | float) and not isinstance(number, bool) else None
    return None


class ClosedSet:
    """The frequent ``values`` of all, by their counts, if nearly all rows have one of them; none if they are no closed
    set. Of the others, misspellings of a frequent one are faults; the rest are doubts, if they are rare together."""

    def __init__(self, counts: Counter[str]) -> None:
        often = Counter({value: count for value, count in counts.items() if count >= FREQUENT})
        closed = counts.total() >= LEAST and 1 < len(often) <= MOST_LABELS and max(map(len, often)) <= SHORT
        closed = closed and often.total() >= MOST * counts.total()
        self.values = often if closed else Counter[str]()
        self._meant = {value: spelled_like(value, often) for value in counts if value not in often} if closed else {}
        unlike = sum(counts[value] for value, near in self._meant.items() if not near)
        self._doubts = unlike <= RARE * counts.total()

    def faults(self, value: str, where: str) -> Iterator[tuple[bool, str, str]]:
        """Whether it is a fault or a doubt, the evidence, and the value that is meant, if that can be told."""
        if value in self.values:
            return
        if near := self._meant.get(value):
            yield True, f"{where} is '{value[:SHORT]}', {self.values[near]:,} others are '{near}'", near
        elif self._doubts:
            told = (
                f"{where} is '{value[:SHORT]}'; {self.values.total():,} others are one of {len(self.values):,} values"
            )
            yield False, told, ""


def spelled_like(value: str, often: Iterable[str]) -> str:
    """The value of which this one is a misspelling; empty if it is none."""
    folded = {other.casefold(): other for other in often}
    own = value.casefold()[: 2 * SHORT]
    swapped = (other for other in folded if len(other) > 2 and sorted(other) == sorted(own))  # pni, pin
    near = next(swapped, "") or next(iter(difflib.get_close_matches(own, folded, 1, ALIKE)), "")
    return folded[near] if near else ""


# Tool calls against the tools that are declared for the row.


def _undeclared(row: Demonstration, value: Any) -> Iterator[Told]:
    tools = _tools(row)
    for call in value if tools and isinstance(value, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            continue
        if call["name"] not in tools:
            near = spelled_like(call["name"], [*tools])
            told = f"calls '{call['name']}', which is not among its {len(tools)} tools"
            yield True, told, *((_with(value, call, "name", near), MISSPELT) if near else ("", 0.0))
            continue
        required, properties = tools[call["name"]]
        given = call.get("arguments")
        given = given if isinstance(given, dict) else {}
        for name in required:
            if name not in given:
                yield True, f"calls '{call['name']}' without '{name}', which it requires", "", 0.0
        for name in given:
            if properties and name not in properties:
                yield True, f"calls '{call['name']}' with '{name}', which it does not know", "", 0.0


def _tools(row: Demonstration) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Required and known arguments of the tools that come with a row, as OpenAI declares them."""
    declared = row.metadata.get("tools") or row.metadata.get("functions")
    declared = parsed(declared) if isinstance(declared, str) else declared
    tools: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for each in declared if isinstance(declared, list) else ():
        tool = each.get("function", each) if isinstance(each, dict) else None
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            return {}
        schema = tool.get("parameters")
        schema = schema if isinstance(schema, dict) else {}
        required, properties = schema.get("required"), schema.get("properties")
        tools[tool["name"]] = (
            [name for name in required if isinstance(name, str)] if isinstance(required, list) else (),
            [*properties] if isinstance(properties, dict) else (),
        )
    return tools


# Texts that nearly all outputs copy from their inputs.


def copied_faults(
    rows: Sequence[Demonstration],
    values: Sequence[Any],
    verified: Sequence[Demonstration],
    right: Sequence[Any],
    kind: Kind,
) -> Iterator[Fault]:
    """Texts, numbers and names that are not in the input, at places where they nearly always are; ``right``: the
    ``verified`` outputs, `parsed`."""
    copied: dict[str, list[bool]] = defaultdict(list)
    taught: dict[str, list[bool]] = defaultdict(list)
    lacking: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        for at, text, inside in _pieces(row, value):
            copied[at].append(inside)
            if not inside:
                lacking[place].append((at, text))
    for row, value in zip(verified, right, strict=True):
        for at, _, inside in _pieces(row, value):
            taught[at].append(inside)
    copies = {at for at, every in copied.items() if is_usual(every, taught[at])}
    for place, every in lacking.items():
        if strange := [(at, text) for at, text in every if at in copies]:
            at, text = strange[0]
            share = copied[at] if len(taught[at]) < LEAST else taught[at]
            told = f"has '{text[:SHORT]}' {at}, which is not in the input; {sum(share):,} of {len(share):,} others are"
            more = f" (and {len(strange) - 1} more)" if len(strange) > 1 else ""
            yield Fault(place, kind, True, told + more)


def _pieces(row: Demonstration, value: Any) -> Iterator[tuple[str, str, bool]]:
    """Each text, number and name of a field in a value: in words where it stands, itself, and whether it is in the
    input, by words and not by capitals. Arguments of all calls are as of one."""
    turns = [turn.content for turn in row.history or ()]
    given = "\n".join([row.input, row.context, *turns]).casefold()
    for path, _, _, part in walk(value):
        call, _, inner = path.rpartition("()")
        name = f"in arguments{inner}" if call else f"in {_at(path)}"
        if isinstance(part, dict):
            yield from ((f"as a name {name}", key, key.casefold() in given) for key in part)
        elif isinstance(part, str | int | float) and not isinstance(part, bool) and part != "":
            yield name, str(part), str(part).casefold() in given


# Entities against the input that they are in.


def entity_faults(
    rows: Sequence[Demonstration], values: Sequence[Any], verified: Sequence[Demonstration], sound: Sequence[Any]
) -> Iterator[Fault]:
    """Entities that are not in the input, whose span gives another text, or whose text is typed otherwise elsewhere.
    Each is looked for only where nearly all entities are as it says; ``sound``: the ``verified`` outputs, `parsed`."""
    every = [(row, entity) for row, value in zip(rows, values, strict=True) for entity in _entities(value)]
    taught = [(row, entity) for row, value in zip(verified, sound, strict=True) for entity in _entities(value)]
    inside, right_inside = ([entity["text"] in row.input for row, entity in pairs] for pairs in (every, taught))
    exclusive, inclusive = (sum(_spans(row, entity, past) for row, entity in every) for past in (0, 1))
    past = 0 if exclusive >= inclusive else 1
    spans, right_spans = (
        [_spans(row, entity, past) for row, entity in pairs if isinstance(entity.get("start"), int)]
        for pairs in (every, taught)
    )
    checks_text, checks_span = is_usual(inside, right_inside), is_usual(spans, right_spans)
    types: dict[str, Counter[str]] = defaultdict(Counter)
    for _, entity in every:
        types[entity["text"].casefold()][str(entity.get("type"))] += 1
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        told: list[str] = []
        right, chance = {}, 1.0
        for entity in _entities(value):
            fault: EntityTold = ("", None, 0.0)
            if checks_text and entity["text"] not in row.input:
                fault = _not_inside(row, entity)
            elif checks_span and "start" in entity and not _spans(row, entity, past) and entity["text"] in row.input:
                fault = _misplaced(row, entity, past)
            elif others := _typed_otherwise(entity, types[entity["text"].casefold()]):
                fault = others
            evidence, meant, likely = fault
            if evidence:
                told.append(evidence)
                chance = min(chance, likely)
            if meant is not None:
                right[id(entity)] = meant
        if told:
            more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
            text = text_of([right.get(id(entity), entity) for entity in value]) if len(right) == len(told) else ""
            yield Fault(place, "entity", True, told[0] + more, text, chance if text else 0.0)


def _entities(value: Any) -> list[dict[str, Any]]:
    every = value if isinstance(value, list) else []
    return [one for one in every if isinstance(one, dict) and isinstance(one.get("text"), str) and one["text"]]


def _spans(row: Demonstration, one: Mapping[str, Any], past: int) -> bool:
    start, end = one.get("start"), one.get("end")
    return isinstance(start, int) and isinstance(end, int) and row.input[start : end + past] == one["text"]


EntityTold = tuple[str, dict[str, Any] | None, float]
"""The evidence, the entity as it should be, if that can be told, and the chance of that."""


def _not_inside(row: Demonstration, entity: dict[str, Any]) -> EntityTold:
    told = f"entity '{entity['text'][:SHORT]}' is not in the input"
    at = row.input.casefold().find(entity["text"].casefold())
    written = row.input[at : at + len(entity["text"])]
    if at < 0 or written.casefold() != entity["text"].casefold():
        return told, None, 0.0
    return f"{told}, which has '{written[:SHORT]}'", {**entity, "text": written}, COPIED


def _misplaced(row: Demonstration, entity: dict[str, Any], past: int) -> EntityTold:
    start, end, text = entity["start"], entity.get("end"), entity["text"]
    start = start if isinstance(start, int) else 0
    given = row.input[start : end + past] if isinstance(end, int) else ""
    told = f"the span {start}–{end} of entity '{text[:SHORT]}' is '{given[:SHORT]}'"
    places: list[int] = []
    at = row.input.find(text)
    while at >= 0 and len(places) < MOST_PARTS:
        places.append(at)
        at = row.input.find(text, at + 1)
    nearest = min(places, key=lambda place: abs(place - start))
    likely = COPIED if len(places) == 1 else 0.5  # of several places the nearest is a guess
    return told, {**entity, "start": nearest, "end": nearest + len(text) - past}, likely


def _typed_otherwise(entity: dict[str, Any], counts: Counter[str]) -> EntityTold | None:
    own, (usual, most) = str(entity.get("type")), counts.most_common(1)[0]
    if own == usual or most < AGREE or most < MOST * (counts.total() - 1):
        return None
    told = f"entity '{entity['text'][:SHORT]}' is {own}, {most:,} of {counts.total() - 1:,} others of this text {usual}"
    return told, {**entity, "type": usual}, most / (most + 2)


# Sets of labels.


def set_faults(rows: Sequence[Demonstration]) -> Iterator[Fault]:
    """Members of sets that are in hardly another set, where the outputs are sets from a few labels."""
    members = [sorted(labels_in(row.output)) for row in rows]
    several = sum(len(own) > 1 for own in members)
    often = ClosedSet(Counter(label for own in members for label in own))
    if not often.values or several < MOST_SINGLE * len(rows):
        return
    for place, own in enumerate(members):
        for label in own:
            for sure, told, near in often.faults(label, "a label"):
                corrected = _renamed(rows[place].output, label, near) if near and near not in own else ""
                yield Fault(place, "member", sure, f"of which {told}", corrected, MISSPELT if corrected else 0.0)


def _renamed(output: str, label: str, near: str) -> str:
    """The set with another name for a member, written as it was; in other members the name may stand, too."""

    def part(match: re.Match[str]) -> str:
        return match[0].replace(label, near) if labels_in(match[0]) == {label} else match[0]

    return re.sub(r'"[^"\n]*"|[^\n;,"\[\]]+', part, output)


MOST_SINGLE = 0.1
"""Share of sets with several members below which the outputs are single texts, some with a comma."""
