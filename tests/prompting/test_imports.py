"""Prompts of other tools as templates: the bytes are those of the tool, and a stranger's file does nothing."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.commands.template_import import template_import
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.prompts import AnswerForm
from icl_curate.engine.pool.records import Demonstration, Message, Query
from icl_curate.engine.prompting.expect import differs
from icl_curate.engine.prompting.foreign.files import LARGEST
from icl_curate.engine.prompting.imports import Imported, import_template
from icl_curate.engine.prompting.template import OPEN, FileTemplate

SHOTS = [("my card was charged twice", "billing"), ('where is "my" box?\n', "order")]
INPUT = "the app\n says {% if %} {{ no }} <é😀>"


def _imported(folder: Path, name: str, text: str | object, **options: Any) -> Imported:
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), newline="")
    return import_template(path, **options)


def _turns(
    made: Imported,
    fields: Mapping[str, Any] = {},
    shots: Sequence[tuple[str, str]] = SHOTS,
    more: Sequence[Mapping[str, Any]] = (),
    question: str = INPUT,
) -> tuple[Message, ...]:
    rows = [*more, *[{}] * (len(shots) - len(more))]
    demonstrations = [
        Demonstration(i, str(i), text, answer, "s", context=row.get("context", ""), metadata=row)
        for i, ((text, answer), row) in enumerate(zip(shots, rows, strict=True))
    ]
    query = Query(question, context=fields.get("context", ""), fields=fields)
    return FileTemplate(made.source).render(query, demonstrations, OPEN)


def _request(*turns: tuple[str, str]) -> dict[str, Any]:
    """What production sends."""
    return {"model": "m", "messages": [{"role": role, "content": content} for role, content in turns]}


# Five prompts of production, in the forms in which they are written.

PROMPTFOO = """\
description: Routing of tickets
prompts:
  - file://prompts/route.json
  - "{{ticket}}"
providers: [openai:gpt-5-mini]
tests:
  - vars: {ticket: where is it?, product: phones}
"""
ROUTE = """\
[
  {"role": "system", "content": "You route tickets of {{ product }}.\\nOne of: billing, order."},
  {% for example in examples %}
  {"role": "user", "content": {{ example.ticket | dump }}},
  {"role": "assistant", "content": "{{ example.team }}"}{% if not loop.last %},{% endif %}
  {% endfor %},
  {"role": "user", "content": "Ticket: {{ ticket }}\\nTeam:"}
]
"""


def test_a_chat_of_promptfoo(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "route.json").write_text(ROUTE)
    made = _imported(tmp_path, "promptfooconfig.yaml", PROMPTFOO)
    expected = _request(
        ("system", "You route tickets of phones.\nOne of: billing, order."),
        ("user", SHOTS[0][0]), ("assistant", "billing"), ("user", SHOTS[1][0]), ("assistant", "order"),
        ("user", f"Ticket: {INPUT}\nTeam:"),
    )  # fmt: skip
    assert differs(expected, _turns(made, {"product": "phones"})) is None
    assert not made.todos and FileTemplate(made.source).reads == {"product"}
    assert "ticket is the query's input" in made.notes


FEW_SHOT = {
    "name": None, "input_variables": ["adjective"], "optional_variables": [], "partial_variables": {"tone": "plain"},
    "examples": [{"word": "happy", "antonym": "sad"}], "example_selector": None,
    "example_prompt": {
        "input_variables": ["antonym", "word"], "template": "Input: {word}\nOutput: {antonym}",
        "template_format": "f-string", "_type": "prompt",
    },
    "prefix": "Write the antonym, in {tone} words, as {{word}}.", "suffix": "Input: {adjective}\nOutput:",
    "example_separator": "\n\n", "template_format": "f-string", "validate_template": False, "_type": "few_shot",
}  # fmt: skip


def _langchain(saved: Mapping[str, Any], examples: Sequence[Mapping[str, str]], **values: str) -> str:
    """What FewShotPromptTemplate.format writes (langchain-core 1.0, prompts/few_shot.py): all of it is formatted again
    with the variables of the prompt."""
    formatted = string.Formatter().format
    shown = [formatted(saved["example_prompt"]["template"], **example) for example in examples]
    pieces = [saved.get("prefix", ""), *shown, saved["suffix"]]
    return formatted(saved["example_separator"].join([piece for piece in pieces if piece]), **values)


def test_a_few_shot_prompt_of_langchain(tmp_path: Path) -> None:
    made = _imported(tmp_path, "antonyms.json", FEW_SHOT)
    shots = [("hot", "cold"), ("big\n", "small")]
    text = _langchain(FEW_SHOT, [{"word": a, "antonym": b} for a, b in shots], tone="plain", adjective=INPUT)
    assert text.startswith("Write the antonym, in plain words, as {word}.\n\nInput: hot\nOutput: cold\n\nInput: big")
    assert differs({"prompt": text}, _turns(made, shots=shots)) is None
    assert not made.todos and "1 example of the file left out: index them as a pool" in made.notes


DSPY = {
    "predict": {
        "traces": [], "train": [], "lm": None,
        "demos": [{"tier": "gold", "text": "t1", "product": "p", "reasoning": "r", "team": "a"}],
        "signature": {
            "instructions": "Route the ticket.\n\n{{ It }} is one of \"ours\".\n   Not of others.",
            "fields": [
                {"prefix": "Tier:", "description": "${tier}"},
                {"prefix": "Text:", "description": "what the customer wrote"},
                {"prefix": "Product:", "description": "${product}"},
                {"prefix": "Reasoning:", "description": "${reasoning}"},
                {"prefix": "Team:", "description": "${team}"},
            ],
        },
    },
    "metadata": {"dependency_versions": {"python": "3.12", "dspy": "3.3.1", "cloudpickle": "3.1"}},
}  # fmt: skip
DSPY_SYSTEM = """\
Your input fields are:
1. `tier` (str):\x20
2. `text` (str): what the customer wrote
3. `product` (str):
Your output fields are:
1. `reasoning` (str):\x20
2. `team` (str):
All interactions will be structured in the following way, with the appropriate values filled in.

[[ ## tier ## ]]
{tier}

[[ ## text ## ]]
{text}

[[ ## product ## ]]
{product}

[[ ## reasoning ## ]]
{reasoning}

[[ ## team ## ]]
{team}

[[ ## completed ## ]]
In adhering to this structure, your objective is:\x20
        Route the ticket.
       \x20
        {{ It }} is one of "ours".
           Not of others."""
LACKS = "This is an example of the task, though some input or output fields are not supplied.\n\n"
NONE = "Not supplied for this particular example. "
ENDS = "\n\n[[ ## completed ## ]]\n"


def test_a_signature_of_dspy_as_its_chat_adapter_writes_it(tmp_path: Path) -> None:
    """The bytes are those of dspy 3.3.1 for these demos and inputs."""
    made = _imported(tmp_path, "program.json", DSPY)
    assert not made.todos
    expected = _request(
        ("system", DSPY_SYSTEM),
        ("user", LACKS + "[[ ## text ## ]]\nt2"),
        ("assistant", f"[[ ## reasoning ## ]]\n{NONE}\n\n[[ ## team ## ]]\nb" + ENDS),
        ("user", LACKS + "[[ ## tier ## ]]\nt\n\n[[ ## text ## ]]\nt3"),
        ("assistant", "[[ ## reasoning ## ]]\nr3\n\n[[ ## team ## ]]\n c" + ENDS),
        ("user", "[[ ## tier ## ]]\ngold\n\n[[ ## text ## ]]\nt1\n\n[[ ## product ## ]]\np"),
        ("assistant", "[[ ## reasoning ## ]]\nr\n\n[[ ## team ## ]]\na" + ENDS),
        (
            "user",
            "[[ ## tier ## ]]\ngold\n\n[[ ## text ## ]]\n now \n\n[[ ## product ## ]]\np\n\nRespond with the "
            "corresponding output fields, starting with the field `[[ ## reasoning ## ]]`, then `[[ ## team ## ]]`, "
            "and then ending with the marker for `[[ ## completed ## ]]`.",
        ),
    )  # fmt: skip
    rows = [{"tier": "gold", "product": "p", "reasoning": "r"}, {}, {"tier": "t", "reasoning": "r3"}]
    shots = [("t1", "a\n"), ("t2 \n", "b"), ("t3", " c ")]
    fields = {"tier": "gold", "product": "p"}
    assert differs(expected, _turns(made, fields, shots, rows, " now ")) is None
    ours = FileTemplate(made.source)
    assert ours.reads == {"tier", "product"} and ours.reasons
    assert ours.form == AnswerForm("[[ ## team ## ]]\n", ENDS)
    reply = "[[ ## reasoning ## ]]\nIt was paid twice.\n\n[[ ## team ## ]]\nbilling" + ENDS
    assert ours.form.read(reply) == "billing"


CALLS = {
    "model": "gpt-5-mini",
    "messages": [
        {
            "role": "developer",
            "content": 'Tools: [{"name": "refund", "parameters": {"order": {"type": "string"}}}]\nToday: {{ today }}',
        },
        {"role": "user", "content": [{"type": "text", "text": "{{ question }}"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "refund"}}],
    "temperature": 0,
}


def test_a_function_calling_request_of_openai(tmp_path: Path) -> None:
    made = _imported(tmp_path, "request.json", CALLS)
    expected = _request(
        (
            "developer",
            'Tools: [{"name": "refund", "parameters": {"order": {"type": "string"}}}]\nToday: Monday',
        ),
        ("user", SHOTS[0][0]), ("assistant", "billing"), ("user", SHOTS[1][0]), ("assistant", "order"),
        ("user", INPUT),
    )  # fmt: skip
    assert differs(expected, _turns(made, {"today": "Monday"})) is None
    (todo,) = made.todos
    assert todo.startswith('tools is no part of a template: [{"type": "function"')
    assert any("the demonstrations are turns before the last question" in note for note in made.notes)
    assert "{# TODO: tools is no part" in made.source


XML = """\
prompts:
  - id: file://route.yaml
    label: xml
"""
XML_PROMPT = """\
- role: system
  content: |
    You route tickets.
    <examples>
    {%- for shot in demos %}
      <example n="{{ loop.index }}"><ticket>{{ shot.text }}</ticket><team>{{ shot.label }}</team></example>
    {%- endfor %}
    </examples>
    {% if tier %}The customer is {{ tier }}.{% endif %}
- role: user
  content: "<ticket>{{ text }}</ticket>"
- role: assistant
  content: "<team>"
"""


def test_xml_with_examples_in_the_system_message(tmp_path: Path) -> None:
    (tmp_path / "route.yaml").write_text(XML_PROMPT)
    made = _imported(tmp_path, "promptfooconfig.yaml", XML, examples="demos")
    system = "".join(
        f'\n  <example n="{i}"><ticket>{text}</ticket><team>{team}</team></example>'
        for i, (text, team) in enumerate(SHOTS, 1)
    )
    for fields, tail in (({"tier": "gold"}, "The customer is gold."), ({}, "")):
        expected = _request(
            ("system", f"You route tickets.\n<examples>{system}\n</examples>\n{tail}\n"),
            ("user", f"<ticket>{INPUT}</ticket>"),
            ("assistant", "<team>"),
        )
        assert differs(expected, _turns(made, fields)) is None
    assert not made.todos and not FileTemplate(made.source).reads


# Nunjucks

VALUES = {
    "tier": "gold", "n": 3, "flag": True, "docs": [{"title": "T1", "tags": ["a", "b"]}, {"title": "T2", "tags": []}],
    "user": {"name": "Ann", "o": {"k": [1, 2]}}, "names": ["x", "y"], "text": "Foo boo\nbar",
}  # fmt: skip
LOOP = "{% for e in examples %}{{ e.q }}|{{ e.a }};{% endfor %}"
SHOWN = "one {{x}}|A\n;|<b> é😀;"
NUNJUCKS = [
    ("\n\n  {{question}}  \n\nLOOP\n\n", "\n\n  now?\n {% if %}  \n\nLOOP\n\n"),
    ("  {% if tier == 'gold' %}\n   G\n  {% elif n > 2 %}x{% else %}\n y {% endif %}\nLOOP", "  \n   G\n  \nLOOP"),
    ("{%- if flag -%}  a  {%- endif %}\n\n {{- question -}} \n bLOOP", "anow?\n {% if %}bLOOP"),
    (
        "{% for e in examples %}\n  {{ loop.index }}. {{ e['q'] }}\n  => {{ e.a }}{% if not loop.last %},{% endif %}\n"
        "{% endfor %}\nQ: {{ question }}\nA:",
        "\n  1. one {{x}}\n  => A\n,\n\n  2. \n  => <b> é😀\n\nQ: now?\n {% if %}\nA:",
    ),
    (
        "{% for d in docs %}\n- {{ d.title }}: {{ d.tags | join(', ') }} ({{ d.tags.length }})\n{% else %}none"
        "{% endfor %}LOOP",
        "\n- T1: a, b (2)\n\n- T2:  (0)\nLOOP",
    ),
    (
        "{{ user | dump }} {{ user.o | dump(2) }} {{ names | dump | safe }}{{ user.o.k[1] }}LOOP",
        '{"name":"Ann","o":{"k":[1,2]}} {\n  "k": [\n    1,\n    2\n  ]\n} ["x","y"]2LOOP',
    ),
    (
        "{# note #}\n{{ text | upper }} {{ text | lower }} {{ text | trim | capitalize }} {{ text | indent(2) }} "
        "{{ text | replace('oo', '0') }}LOOP",
        "\nFOO BOO\nBAR foo boo\nbar Foo boo\nbar Foo boo\n  bar F0 b0\nbarLOOP",
    ),
    (
        "{{ missing | default('d') }}{% if missing %}m{% endif %}{% if not missing.deep %}n{% endif %}"
        "{% if missing is defined %}z{% endif %}LOOP",
        "dnLOOP",
    ),
    (
        "{% set t = tier %}{{ t }}{% raw %}{{ a }} {% b %}{% endraw %}{ {% if flag %}f{% endif %}{ LOOP",
        "gold{{ a }} {% b %}{ f{ LOOP",
    ),
    (
        "{{ 'yes' if flag else 'no' }} {{ flag and tier }} {{ none or 'x' }} {{ n + 1 }} {{ names | length }} "
        "{{ names | first }}LOOP",
        "yes gold x 4 2 xLOOP",
    ),
    ("{% if tier === 'gold' and n !== 4 %}S{% endif %}{% if 'x' in names %}in{% endif %}LOOP", "SinLOOP"),
    (
        "<examples>{% for e in examples -%}\n <ex>\n  <q>{{ e.q }}</q>{{ e.a }}\n </ex>\n{%- endfor %}\n</examples>",
        "<examples><ex>\n  <q>one {{x}}</q>A\n\n </ex><ex>\n  <q></q><b> é😀\n </ex>\n</examples>",
    ),
    (
        "{% macro ask(x, y='k') %}[{{ x }}-{{ y }}]{% endmacro %}{{ ask(tier) }}{{ ask('a', y='b') }}LOOP",
        "[gold-k][a-b]LOOP",
    ),
    ("a\r\nb\r\n{{question}}LOOP", "a\r\nb\r\nnow?\n {% if %}LOOP"),
    (
        "{% if flag %} \n\t{% endif %}   {% if flag %}x{% endif %}\n \t{% for m in names %} \n {{ m }}{% endfor %}LOOP",
        " \n\t   x\n \t \n x \n yLOOP",
    ),
    (
        "{{ examples | length }}{{ examples.length }}{% if examples.length > 1 %}many{% endif %}LOOP",
        "22manyLOOP",
    ),
    ("é😀 {{ '}}' }} {{ \"a'b\" }} }} {%- if flag %}{% endif %}LOOP", "é😀 }} a'b }}LOOP"),
    (
        "{% for m in names %}{% for e in examples %}{{ m }}{{ e.q }}{{ e.a }}{{ loop.index0 }}{{ loop.revindex }}"
        "{% endfor %}{% endfor %}",
        "xone {{x}}A\n02x<b> é😀11yone {{x}}A\n02y<b> é😀11",
    ),
]
"""Texts and what Nunjucks 3.2.4 makes of them, with autoescape off as promptfoo has it."""


@pytest.mark.parametrize(("text", "rendered"), NUNJUCKS)
def test_a_text_of_nunjucks_is_rendered_as_nunjucks_does(tmp_path: Path, text: str, rendered: str) -> None:
    made = _imported(tmp_path, "prompt.j2", text.replace("LOOP", LOOP), input="question")
    shots = [("one {{x}}", "A\n"), ("", "<b> é😀")]
    (turn,) = _turns(made, VALUES, shots, question="now?\n {% if %}")
    assert turn == Message("user", rendered.replace("LOOP", SHOWN))
    assert not made.todos


@pytest.mark.parametrize(
    ("tag", "about"),
    [
        ("{{ env.OPENAI_API_KEY }}", "reads the environment"),
        ("{{ text.split(',') }}", "split() calls a program"),
        ("{{ range(3) }}", "range() calls a program"),
        ("{{ text | myfilter }}", "there is no filter 'myfilter'"),
        ("{{ text ~ 'x' }}", "makes texts longer"),
        ("{{ 'x' + text }}", "makes texts longer"),
        ("{{ examples }}", "how one demonstration is written"),
        ("{{ examples | dump }}", "how one demonstration is written"),
        ("{% for e in examples %}{{ e }}{% endfor %}", "e is a demonstration"),
        ("{% for k, v in user %}{{ k }}={{ v }}{% endfor %}", "one variable"),
        ("{% include 'other.njk' %}", "no tag 'include'"),
        ("{% if text.includes('x') %}y{% endif %}", "includes() calls a program"),
        ("{{ rationale }}", "'rationale' of the query is never shown"),
        ("{% for e in examples %}{% set x = 1 %}{% endfor %}", "set in a loop"),
        ("{% for c in _conversation %}{{ c.input }}{% endfor %}", "query.turns"),
        ("{{ text | }}", "expected token"),
        ("{{ text | dump('x') }}", "a number of blanks"),
        ("{% set a, b = 1, 2 %}", "one variable is set"),
        ("{% set %}", "one variable is set"),
        ("{%  %}", "no tag ''"),
        ("{% for query in user %}{{ query }}{% endfor %}", "is a name of templates"),
    ],
)
def test_what_cannot_be_translated_is_named_at_its_place(tmp_path: Path, tag: str, about: str) -> None:
    made = _imported(tmp_path, "prompt.j2", f"before {tag} after {{{{ text }}}}")
    assert about in " ".join(made.todos)
    assert made.source.index("before ") < made.source.index("{# TODO: ") < made.source.index(" after")
    assert FileTemplate(made.source).render(Query("t", fields={"user": {}}), [], OPEN)[-1].content.endswith(" after t")


# LangChain

LITERAL = st.text(list("ab {}%#-+\n\t\r\"'"), max_size=6) | st.sampled_from(["{{", "{% x %}", "{#", "#}", " {%- "])
PLAIN = st.text(list("ab %#-+\n\t\r\"'é"), max_size=6)


def _twice(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@settings(max_examples=150, deadline=None)
@given(st.lists(LITERAL, min_size=6, max_size=6), st.lists(PLAIN, min_size=5, max_size=5), st.booleans(), st.booleans())
def test_any_few_shot_prompt_is_formatted_as_langchain_does(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], values: list[str], prefixed: bool, suffixed: bool
) -> None:
    literal = [_twice(text) for text in texts]
    saved = {
        "_type": "few_shot", "example_separator": literal[0],
        "example_prompt": {"_type": "prompt", "template": f"{_twice(literal[1])}{{q}}{_twice(literal[2])}{{a}}"},
        "prefix": f"{literal[3]}{{tier}}" if prefixed else "",
        "suffix": f"{literal[4]}{{input}}{literal[5]}" if suffixed else "",
    }  # fmt: skip
    shots = [(values[0], values[1]), (values[2], values[3])]
    expected = _langchain(saved, [{"q": q, "a": a} for q, a in shots], tier=values[4], input="now?")
    if not all(f"{texts[1]}{q}{texts[2]}{a}" for q, a in shots):
        return  # LangChain leaves an empty demonstration out, with its separator
    made = _imported(tmp_path_factory.mktemp("few"), "few.json", saved, input="input")
    assert differs({"prompt": expected}, _turns(made, {"tier": values[4]}, shots, question="now?")) is None


def test_prefix_and_suffix_may_be_templates_in_files(tmp_path: Path) -> None:
    (tmp_path / "suffix.txt").write_text("Q: {question}\nA:")
    (tmp_path / "one.json").write_text(json.dumps({"_type": "prompt", "template": "Q: {question}\nA: {answer}"}))
    saved = {
        "_type": "few_shot_with_templates", "example_prompt_path": "one.json", "examples": [],
        "prefix": {"_type": "prompt", "template": "Say {{{{so}}}} to {tier}."},
        "suffix": {"_type": "prompt", "template_path": "suffix.txt"},
    }  # fmt: skip
    made = _imported(tmp_path, "few.json", saved)
    assert made == _imported(tmp_path, "few.yaml", json.dumps(saved))
    (turn,) = _turns(made, {"tier": "gold"}, [("q1", "a1")])
    assert turn.content == f"Say {{so}} to gold.\n\nQ: q1\nA: a1\n\nQ: {INPUT}\nA:"


def _made(kind: str, **made: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "chat", kind], "kwargs": made}


def _text(template: str, form: str = "f-string") -> dict[str, Any]:
    return _made("PromptTemplate", template=template, template_format=form, input_variables=[])


FEW_SHOT_CHAT = {
    "lc": 1, "type": "not_implemented",
    "id": ["langchain_core", "prompts", "few_shot", "FewShotChatMessagePromptTemplate"],
    "repr": "FewShotChatMessagePromptTemplate(examples=[{'ticket': 'a', 'team': 'b'}], input_variables=[], "
    "example_prompt=ChatPromptTemplate(input_variables=['team', 'ticket'], messages=[HumanMessagePromptTemplate("
    "prompt=PromptTemplate(input_variables=['ticket'], input_types={}, template=\"Customer's: {ticket}\\n\"), "
    "additional_kwargs={}), AIMessagePromptTemplate(prompt=PromptTemplate(input_variables=['team'], "
    "template='{team}'), additional_kwargs={})]))",
}  # fmt: skip


def test_a_chat_of_langchain_with_demonstrations_as_messages(tmp_path: Path) -> None:
    chat = _made(
        "ChatPromptTemplate",
        partial_variables={"product": "phones {x}"},
        messages=[
            _made("SystemMessagePromptTemplate", prompt=_text('You route tickets of {product}. Write {{"team": …}}.')),
            FEW_SHOT_CHAT,
            _made("MessagesPlaceholder", variable_name="chat_history"),
            _made("HumanMessagePromptTemplate", prompt=_text("{input} ({tier})")),
        ],
    )
    made = _imported(tmp_path, "chat.json", chat)
    assert not made.todos
    ours = FileTemplate(made.source)
    history = (Message("user", "hi"), Message("assistant", "hello"))
    shots = [Demonstration(0, "0", "lost", "order", "s")]
    assert ours.render(Query("now?", history=history, fields={"tier": "gold"}), shots, OPEN) == (
        Message("system", 'You route tickets of phones {x}. Write {"team": …}.'),
        Message("user", "Customer's: lost\n"), Message("assistant", "order"), *history, Message("user", "now? (gold)"),
    )  # fmt: skip


def test_tags_between_the_messages_of_a_chat_stay_between_them(tmp_path: Path) -> None:
    chat = (
        '[{% if tier %}{"role": "system", "content": "Tier {{ tier }}: \\"{{ product | dump }}\\"\\r\\n"},'
        "{% else %}{# none #}{% endif %}{% for e in examples %}{# each #}\n"
        '{"role": "user", "content": {{- e.q | dump -}} }, {"content": {{ e.a | dump | safe }}, "role": "assistant"}'
        '{% if not loop.last %},{% endif %}{% endfor %}, {"role": "user", "content": "{ {{ q }} }"}]'
    )
    made = _imported(tmp_path, "chat.json", chat)
    assert not made.todos
    turns = [Message("user", "q1"), Message("assistant", "a1"), Message("user", "{ now? }")]
    assert _turns(made, {"tier": ""}, [("q1", "a1")], question="now?") == tuple(turns)
    system = Message("system", 'Tier gold: ""phones""\r\n')
    fields = {"tier": "gold", "product": "phones"}
    assert _turns(made, fields, [("q1", "a1")], question="now?") == (system, *turns)
    broken = _imported(tmp_path, "chat.json", chat.replace('"content": "{ ', '"content" "{ '))
    assert broken.todos == ("this looks like messages as JSON, but is none",)


MUSTACHE = """\
{{! a note }}
{{product}} & {{{product}}}
{{#examples}}
- {{question}}: {{&answer}}
{{/examples}}
{{^tier}}
none
{{/tier}}
{{#tags}}[{{.}}]{{/tags}} {{#tier}}({{tier}}){{/tier}} { {{question}} }"""


def test_mustache_escapes_as_langchain_does(tmp_path: Path) -> None:
    made = _imported(tmp_path, "prompt.json", {"_type": "prompt", "template": MUSTACHE, "template_format": "mustache"})
    assert not made.todos
    fields = {"product": '<a & "b">', "tier": "gold", "tags": ["x", "<y>"]}
    (turn,) = _turns(made, fields, [("q<1>", "a<1>")], question="now > then?")
    assert turn.content == (
        '&lt;a &amp; &quot;b&quot;&gt; & <a & "b">\n- q&lt;1&gt;: a<1>\n[x][&lt;y&gt;] (gold) { now &gt; then? }'
    )
    (turn,) = _turns(made, {**fields, "tier": "", "tags": []}, [], question="?")
    assert turn.content.endswith('"b">\nnone\n  { ? }')


@settings(max_examples=200, deadline=None)
@given(st.text(list("ab {}%#-+\n\t\r\"'é😀"), max_size=30) | LITERAL)
def test_a_literal_text_stays_as_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    messages = [_made("SystemMessage", content=text), _made("HumanMessage", content=text)]
    made = _imported(tmp_path_factory.mktemp("chat"), "chat.json", _made("ChatPromptTemplate", messages=messages))
    assert [turn.content for turn in _turns(made, shots=[("", "")])] == [text, text, "", text]


# Files of strangers

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text", "about"),
    [
        ("c.yaml", "prompts: !!python/object/apply:os.system ['touch ran']", "no YAML of plain data"),
        ("c.yaml", "prompts: [!!python/name:os.system '']", "no YAML of plain data"),
        ("c.yaml", f"{BOMB}prompts: [hello]", "aliases stand for more than 128 MB"),
        ("c.yaml", "prompts: &p [*p]", "stands for itself"),
        ("c.yaml", "x: " + "[" * 50_000, "no YAML of plain data"),
        ("c.yaml", "prompts: [file://../secret.txt]", "outside its folder"),
        ("c.yaml", "prompts: [file:///etc/hostname.txt]", "outside its folder"),
        ("c.yaml", "prompts: [file://link.txt]", "outside its folder"),
        ("c.yaml", "prompts: [file://pipe.txt]", "pipe"),
        ("c.yaml", "prompts: [file://prompt.py]", "nothing is run"),
        ("c.yaml", "prompts: ['file://prompt.js:build']", "nothing is run"),
        ("c.yaml", "prompts: ['exec:./prompt.sh']", "nothing is run"),
        ("c.yaml", "prompts: ['langfuse://mine:3']", "nothing is run or fetched"),
        ("c.yaml", "prompts: ['prompts/*.txt']", "No such file"),
        ("c.yaml", "prompts: []", "prompts is no list"),
        ("c.yaml", "prompts: [3]", "a prompt is no text"),
        ("c.yaml", "providers: [openai:x]", "is no prompt that is known"),
        ("c.json", "[" * 100_000, "is no JSON"),
        ("c.json", '{"_type": "pipeline"}', "kind 'pipeline' is not known"),
        ("c.json", '{"_type": "few_shot", "suffix": "{"}', "has no example_prompt"),
        ("c.json", '{"_type": "prompt", "template": "{x"}', "is no f-string"),
        ("c.json", '{"_type": "prompt", "template_path": "../secret.txt"}', "outside its folder"),
        ("c.json", '{"signature": {"instructions": "x", "fields": [{}]}}', "no input and output"),
        ("c.j2", "\U000f0001{{ x }}", "private use"),
        ("c.j2", "x" * 100_000, "more than 65,536"),
        ("c.j2", "x" * (LARGEST + 1), "more than 8,388,608 bytes"),
        ("c.j2", "{% if a %}", "the template fails"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused_in_one_line(tmp_path: Path, name: str, text: str, about: str) -> None:
    import os

    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (home / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(home / "pipe.txt")
    with pytest.raises(UsageError, match=about) as caught:
        _imported(home, name, text)
    assert "\n" not in caught.value.what and len(caught.value.what) < 500 and caught.value.fix
    assert "secret\n" not in caught.value.what and not Path("ran").exists()


def test_a_program_among_the_prompts_is_refused_where_it_is_the_one_that_is_wanted(tmp_path: Path) -> None:
    config = "prompts: ['Route: {{ ticket }}', file://prompt.py]"
    assert "Route: " in _imported(tmp_path, "c.yaml", config, prompt=1).source
    with pytest.raises(UsageError, match="nothing is run"):
        _imported(tmp_path, "c.yaml", config, prompt=2)


def test_a_prompt_without_a_variable_is_told(tmp_path: Path) -> None:
    turns = {"messages": [{"role": "user", "content": "Where is my box?"}]}
    for name, text in (("request.json", turns), ("plain.txt", "Route: {ticket}")):
        assert any("it has no variable" in note for note in _imported(tmp_path, name, text).notes)
    assert not any("it has no variable" in note for note in _imported(tmp_path, "c.j2", "{{ ticket }}").notes)


OPENINGS = ["{#" * 32_000, "{% raw %}" * 7_000, "{{'" * 21_000, '{{ "\\' * 12_000, "[{{" * 21_000]


@pytest.mark.parametrize("text", OPENINGS)
def test_a_text_of_openings_is_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="does not end"):
        _imported(tmp_path, "c.j2", text)


KEYS = [
    "prompts", "providers", "config", "tools", "defaultTest", "vars", "raw", "id", "messages", "role", "content",
    "text", "_type", "lc", "kwargs", "prompt", "template", "template_format", "example_prompt", "examples", "prefix",
    "suffix", "partial_variables", "variable_name", "repr", "first", "predict", "signature", "instructions", "fields",
    "description", "demos", "tool_calls", "example_separator", "template_path",
]  # fmt: skip
WORDS = [
    "few_shot", "prompt", "chat", "ChatPromptTemplate", "HumanMessagePromptTemplate", "MessagesPlaceholder",
    "FewShotChatMessagePromptTemplate", "user", "mustache", "jinja2", "{x}", "{{x}}", "{{#x}}{{.}}{{/x}}", "{{#x}}",
    "{x:>3}{y!r}", "[{{x}}]", "${x}", "X:", "{% if x %}",
    "example_prompt=HumanMessagePromptTemplate(prompt=PromptTemplate(template='\\x')",
]  # fmt: skip
LEAVES = st.sampled_from(WORDS) | st.none() | st.integers(0, 2) | st.text(max_size=3)
VALUES_OF_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES_OF_JSON, min_size=1, max_size=6), st.booleans())
def test_whatever_a_file_holds_is_imported_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any], yaml: bool
) -> None:
    name = "c.yaml" if yaml else "c.json"
    try:
        made = _imported(tmp_path_factory.mktemp("any"), name, json.dumps(value))
    except UsageError as error:
        assert "\n" not in error.what
    else:
        assert FileTemplate(made.source).form is not None


def test_each_prompt_of_a_file_has_a_number(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("first {{ q }}\n---\n\nsecond {{ q }}\r\n")
    config = "prompts: [file://two.txt, 'third {{ q }}']"
    for number, text in enumerate(("first ?", "second ?", "third ?"), 1):
        made = _imported(tmp_path, "c.yaml", config, prompt=number)
        assert _turns(made, shots=[], question="?")[-1].content == text
    with pytest.raises(UsageError, match="there is no prompt 4"):
        _imported(tmp_path, "c.yaml", config, prompt=4)


@pytest.mark.parametrize("count", [1_001, 150])
def test_no_more_files_are_read_than_a_prompt_may_name(tmp_path: Path, count: int) -> None:
    (tmp_path / "short.txt").write_text("{{ q }}")
    (tmp_path / "long.txt").write_text("{{ q }}" + "x" * 60_000)
    name = "short.txt" if count > 1_000 else "long.txt"
    message = {"lc": 1, "id": ["HumanMessagePromptTemplate"], "kwargs": {"prompt": {"template_path": name}}}
    chat = {"_type": "chat", "messages": [message] * count}
    for file, value in (("c.yaml", {"prompts": [f"file://{name}"] * count}), ("c.json", chat)):
        with pytest.raises(UsageError, match="names more than 1,000 files, or 8,388,608 characters in them"):
            _imported(tmp_path, file, value)


def test_the_fields_of_a_signature_that_says_neither_are_asked_for(tmp_path: Path) -> None:
    fields = [{"prefix": f"{name}:", "description": "given"} for name in ("Text", "Neo 4 J Id", "Kb Id", "Team")]
    state = {
        "demos": [{"text": "x", "neo4jId": "1", "team": "a"}],
        "signature": {"instructions": "Do.", "fields": fields},
    }
    made = _imported(tmp_path, "p.json", state)
    assert made.todos == ("DSPy does not save which fields are outputs; is it team alone? Else correct this",)
    assert "DSPy does not save the names of fields; 'Kb Id' is taken for kb_id" in made.notes
    assert "[[ ## neo4jId ## ]]" in made.source and "[[ ## kb_id ## ]]" in made.source


def test_the_command_writes_a_template_and_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.j2").write_text("\x1b[1mTeam of {{ ticket }}?")
    template_import(tmp_path / "p.j2", prompt=1, examples="examples", input="", out=None, force=False)
    printed = capsys.readouterr()
    assert FileTemplate(printed.out).render(Query("t"), [], OPEN) == (Message("user", "\x1b[1mTeam of t?"),)
    assert "note: ticket is the query's input" in printed.err
    out = tmp_path / "mine.jinja"
    (tmp_path / "p.j2").write_text("{{ ticket | shout }}")
    with pytest.raises(typer.Exit) as stopped:
        template_import(tmp_path / "p.j2", prompt=1, examples="examples", input="", out=out, force=False)
    assert stopped.value.exit_code == 2
    told = capsys.readouterr().err
    assert "TODO: {{ ticket | shout }}: there is no filter 'shout'" in told
    assert f"icl-curate template check {out}" in told and "{# TODO:" in out.read_text()
    with pytest.raises(UsageError, match="exists"):
        template_import(tmp_path / "p.j2", prompt=1, examples="examples", input="", out=out, force=False)
