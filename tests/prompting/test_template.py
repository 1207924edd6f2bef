"""Template files: their head, the form of an answer, the fields they read, and where an answer begins."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.cache import call_key
from icl_curate.engine.llm.types import Request
from icl_curate.engine.pool.prompts import AnswerForm, Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Query, Task
from icl_curate.engine.prompting.template import FileTemplate, build_prompt, built_in, names, opening_of, question_of

TASK = Task("labels", ("billing", "order"))
SHOTS = [Demonstration(i, f"d{i}", f"text {i}", "billing", "s", metadata={"tier": "gold"}) for i in range(2)]
TICKET = """+++
answer = "<team>{{ output }}</team>"
stop = ["</team>"]
+++
{% system %}You route tickets of {{ query.product }}. Teams: {{ labels | join(", ") }}.
{% for shot in shots %}
<example n="{{ loop.index }}"><ticket>{{ shot.input }}</ticket><tier>{{ shot.tier }}</tier>{{ shot.answer }}</example>
{% endfor %}{% endsystem %}
{% user %}<ticket>{{ query.input }}</ticket><tier>{{ query.tier }}</tier>{% enduser %}
"""
QUERY = Query("where?", fields={"product": "phones", "tier": "silver", "output": "order"})


def test_a_production_prompt_is_written_as_it_is_served() -> None:
    prompt = build_prompt(QUERY, SHOTS, TASK, FileTemplate(TICKET), "best-first")
    assert prompt.messages == (
        Message(
            "system",
            "You route tickets of phones. Teams: billing, order.\n"
            '<example n="1"><ticket>text 0</ticket><tier>gold</tier><team>billing</team></example>\n'
            '<example n="2"><ticket>text 1</ticket><tier>gold</tier><team>billing</team></example>\n',
        ),
        Message("user", "<ticket>where?</ticket><tier>silver</tier>"),
    )
    assert prompt.stop == ("</team>",) and prompt.form == AnswerForm("<team>", "</team>")
    assert question_of(FileTemplate(TICKET), QUERY, TASK) == "<ticket>where?</ticket><tier>silver</tier>"
    assert opening_of(FileTemplate(TICKET), QUERY, TASK).startswith("You route tickets of phones.")


def test_it_is_known_which_fields_of_the_query_are_needed() -> None:
    assert FileTemplate(TICKET).reads == {"product", "tier"}
    through = "{% macro m(q) %}{{ q.tier }}{{ n(q) }}{% endmacro %}{% macro n(x) %}{{ x['kind'] }}{% endmacro %}"
    assert FileTemplate(through + "{{ m(query) }}{% for shot in shots %}{{ shot.other }}{% endfor %}").reads == {
        "tier", "kind",
    }  # fmt: skip
    assert not FileTemplate("{{ query.hint | default('') }}{% if query.x is defined %}{{ query.x }}{% endif %}").reads
    assert not any(FileTemplate(built_in(name)).reads for name in names())
    names_of_it = {
        "{% set q = query %}{{ q.tier }}", "{% with q = query %}{{ q.tier }}{% endwith %}",
        "{% macro m(q) %}{{ q.tier }}{% endmacro %}{{ m(q=query) }}",
        "{% macro m(q=query) %}{{ q.tier }}{% endmacro %}{{ m() }}",
    }  # fmt: skip
    assert all(FileTemplate(source).reads == {"tier"} for source in names_of_it)
    assert FileTemplate("{{ query.content }}").reads == {"content"}  # every turn has one, but not every query
    with pytest.raises(UsageError, match="there is no field 'tier'"):
        build_prompt(Query("now?", fields={"product": "phones"}), [], TASK, FileTemplate(TICKET))


@pytest.mark.parametrize(
    "source",
    [
        "{% set name = 'tier' %}{{ query[name] }}",
        "{% for name in query %}{{ query[name] }}{% endfor %}",
        "{{ query | tojson }}",
        "{{ [query][0].tier }}",
    ],
)
def test_what_a_template_reads_of_the_query_is_known_before_it_is_rendered(source: str) -> None:
    with pytest.raises(UsageError, match="name its fields"):
        _ = FileTemplate(source).reads


def test_a_template_sees_no_field_that_was_not_checked() -> None:
    hidden = "{% macro m(q) %}{% for one in [q] %}{{ one.product }}{% endfor %}{% endmacro %}{{ m(query) }}"
    with pytest.raises(UsageError, match="there is no field 'product'"):
        FileTemplate(hidden).render(QUERY, [], TASK)


@pytest.mark.parametrize(
    ("head", "about"),
    [
        ('answer = "no place"', "without one"),
        ('answer = "{{ output }} {{ output }}"', "without one"),
        ("answer = 3", "answer is 3, not a text"),
        ('stop = [""]', "stop is .* not a list of texts"),
        ('stop = "x"', "stop is 'x', not a list of texts"),
        ("colour = 1", "unknown key 'colour'"),
        ("= =", "the head of the template"),
    ],
)
def test_a_bad_head_is_refused_in_one_line(head: str, about: str) -> None:
    with pytest.raises(UsageError, match=about) as caught:
        _ = FileTemplate(f"+++\n{head}\n+++\n{{{{ query.input }}}}").form
    assert "\n" not in caught.value.what and "+++" in caught.value.fix


def test_a_head_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match="has no end"):
        _ = FileTemplate('+++\nanswer = "x {{ output }}"\n{{ query.input }}').form


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("{{ query.input | tojsn }}", r"line 5: No filter named 'tojsn'\.$"),
        ("{% include 'a' %}", "line 5: include is not allowed"),
        ("{% for shot in shots %}{{ shot.hint }}{% endfor %}", "line 5: there is no field 'hint'"),
        ("{{ query.input.upper() }}", "line 5: a template may call nothing"),
    ],
)
def test_a_fault_is_told_with_its_line_in_the_file(text: str, about: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_prompt(QUERY, SHOTS, TASK, FileTemplate(f'+++\nstop = ["x"]\n+++\nA line.\n{text}'))
    assert re.search(about, caught.value.what)


FORMS = [AnswerForm(), AnswerForm("<team>", "</team>"), AnswerForm("Answer: "), AnswerForm('{"a": ', "}", True)]


@given(st.sampled_from(FORMS), st.text(max_size=30).map(str.strip))
def test_what_was_written_is_read_again(form: AnswerForm, output: str) -> None:
    if not form.quoted and any(mark and mark.strip() in output for mark in (form.before, form.after)):
        return  # an output that contains the marks of the form
    assert form.read(form.write(output)) == output


@pytest.mark.parametrize(
    ("form", "reply", "output"),
    [
        (FORMS[1], "Sure: <team>billing</team>.", "billing"),
        (FORMS[1], "<team>order</team>? No: <team>billing", "billing"),
        (FORMS[1], "billing", "billing"),
        (FORMS[2], "It was paid twice.\nAnswer:billing", "billing"),
        (FORMS[3], 'Here: {"a": "say \\"hi\\""} done', 'say "hi"'),
        (FORMS[3], '{"a": 3}', "3"),
        (FORMS[3], 'Sure:\n```json\n{\n  "a" : "billing"\n}\n```', "billing"),
        (FORMS[3], '{"A":"billing"}', "billing"),
        (FORMS[3], '{"b": "billing"}', '{"b": "billing"}'),
        (FORMS[1], "<Team>billing</Team>.", "billing"),
        (FORMS[2], "It was paid twice.\nFinal answer: billing", "billing"),
        (FORMS[2], "the answer: I do not know\nAnswer: billing", "billing"),
        (FORMS[2], "It was paid twice.\n**Final Answer:** billing", "billing"),
        (FORMS[2], "**So**\n**Answer: billing**", "billing"),
    ],
)
def test_an_answer_is_found_in_what_stands_around_it(form: AnswerForm, reply: str, output: str) -> None:
    assert form.read(reply) == output


def _scored(source: str) -> tuple[str, list[str]]:
    prompt = build_prompt(Query("where?"), SHOTS[:1], TASK, FileTemplate(source))
    return prompt.scored(prompt.text, chat=False)


def test_options_begin_where_the_demonstrations_answers_do() -> None:
    shown = "{% for shot in shots %}{{ shot.input }} Team:"
    assert _scored(shown + " {{ shot.answer }}\n{% endfor %}{{ query.input }} Team:") == (
        "text 0 Team: billing\nwhere? Team:", [" billing", " order"],
    )  # fmt: skip
    assert _scored(shown + " {{ shot.answer }}\n{% endfor %}{{ query.input }} Team: ")[1] == [" billing", " order"]
    # one cue ends both, with nothing between it and an answer
    near = "{% for shot in shots %}Team:{{ shot.answer }}\n{% endfor %}{{ query.input }}\nTeam:"
    assert _scored(near) == ("Team:billing\nwhere?\nTeam:", ["billing", "order"])
    head = "+++\nanswer = '<t>{{ output }}</t>'\n+++\n"
    begun = head + "{% user %}{{ query.input }}{% enduser %}{% assistant %}<t>{% endassistant %}"
    assert _scored(begun) == ("where? <t>", ["billing</t>", "order</t>"])
    assert _scored(begun.replace("%}<t>", "%}Sure: <t>"))[1] == ["billing</t>", "order</t>"]
    assert _scored(begun.replace("%}<t>", "%}Sure: "))[1] == ["<t>billing</t>", "<t>order</t>"]
    assert Prompt((Message("user", "?"),), Query("?"), choices=("a",)).scored("?\nAnswer:", chat=True)[1] == ["a"]


def test_a_prompt_format_may_have_any_character() -> None:
    template = FileTemplate(built_in("auto", '🎫 "é" {{x}} \\n\n{input}'))
    prompt = build_prompt(Query("where?"), [], TASK, template)
    assert prompt.messages[-1].content == '🎫 "é" {x} \\n\nwhere?\nAnswer:'


@pytest.mark.parametrize(
    "text", ["{% system %}x{% endsystem %}", "{% assistant %}x{% endassistant %}{% user %}y{% enduser %}"]
)
def test_a_template_that_asks_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="asks nothing"):
        build_prompt(Query("now?"), [], TASK, FileTemplate(text))


def test_prompts_that_end_otherwise_are_other_calls() -> None:
    source = "{{ query.input }}"
    prompts = [
        build_prompt(Query("?"), [], TASK, FileTemplate(head + source)) for head in ("", "+++\nreasons = true\n+++\n")
    ]
    assert prompts[0].messages == prompts[1].messages
    plain, reasoned = (call_key({"llm": "x"}, Request(prompt)) for prompt in prompts)
    assert plain != reasoned
    # the answer after the reasons is one line, and the reply is none
    assert prompts[1].one_line and reasoned == call_key({"llm": "x"}, Request(replace(prompts[1], one_line=False)))


def test_a_built_in_template_is_none_of_another_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.jinja").write_text("{{ query.input }} secret")
    with pytest.raises(UsageError, match="no built-in template"):
        built_in(str(tmp_path / "secret"))


def test_an_answer_that_only_ends_in_a_form_is_read() -> None:
    assert AnswerForm("", "</answer>").read("billing</answer>") == "billing"
    assert AnswerForm("\n", "</answer>").read("billing") == "billing"
    assert AnswerForm(quoted=True).read('"billing"') == "billing"


def test_the_template_json_shows_objects_as_objects() -> None:
    form, output = FileTemplate(built_in("json")).form, '{"item": "green tea", "number": 2}'
    assert form.write(output) == '{"answer": {"item": "green tea", "number": 2}}'
    assert form.read(f"Here: {form.write(output)}.") == output
    for text in ("billing", "{no JSON}", "[x", ' {"a": 1}', "7", "null"):
        assert json.loads(form.write(text)) == {"answer": text} and form.read(form.write(text)) == text
