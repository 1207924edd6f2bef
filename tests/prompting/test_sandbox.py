"""Templates of strangers: what they may not do, and that data is never read as a template."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.prompting.sandbox import LONGEST, MOST
from icl_curate.engine.prompting.template import FileTemplate, build_prompt, built_in, names

LABELS = Task("labels", tuple(f"label {i}" for i in range(200)))
SHOTS = [Demonstration(0, "d", "in", "out", "s", metadata={"tier": "gold", "note": "n" * 10_000})]


def _rendered(source: str) -> str:
    prompt = build_prompt(Query("now?"), SHOTS, LABELS, FileTemplate(source))
    return "|".join(f"{turn.role}:{turn.content}" for turn in prompt.messages)


HOSTILE = {
    "an attribute of Python's": "{{ ''.__class__.__mro__ }}",
    "an attribute by subscript": "{{ query['__class__'] }}",
    "an attribute by filter": "{{ query | attr('__class__') }}",
    "a method": "{{ query.input.upper() }}",
    "a method of a format": "{{ '{0.__class__}'.format(query) }}",
    "the loop's own methods": "{% for s in shots %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "a global of Jinja's": "{{ cycler.__init__.__globals__ }}",
    "a range": "{% for i in range(10) %}{% endfor %}",
    "another file": "{% include '/etc/passwd' %}",
    "another template": "{% import 'auto' as auto %}",
    "a parent": "{% extends 'auto' %}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a product of texts": "{{ 'x' * 999999999 }}",
    "a format": "{{ '%999999999d' % 1 }}",
    "a sum of texts": "{{ query.input + query.input }}",
    "texts that double": "{% set a = 'xxxx' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
    "blocks that double": "{% set a0 = 'xxxx' %}"
    + "".join(f"{{% set a{i + 1} %}}{{{{ a{i} }}}}{{{{ a{i} }}}}{{% endset %}}" for i in range(40))
    + "{{ a40 }}",
    "macros that double": "{% macro m0() %}xxxx{% endmacro %}"
    + "".join(f"{{% macro m{i + 1}() %}}{{{{ m{i}() }}}}{{{{ m{i}() }}}}{{% endmacro %}}" for i in range(40))
    + "{{ m40() }}",
    "loops in loops": "{% for a in labels %}" * 5 + "{% endfor %}" * 5,
    "loops over letters": "{% for a in shots[0].note %}{% for b in shots[0].note %}{% endfor %}{% endfor %}",
    "much text in a loop": "{% for a in labels %}{% for b in labels %}" + "x" * 5_000 + "{% endfor %}{% endfor %}",
    "much code in a loop": "{% for a in labels %}{% for b in labels %}"
    + "{% set x = a %}" * 500
    + "{% endfor %}{% endfor %}",
    "a wide join": "{{ shots[0].note | list | join(shots[0].note) }}",
    "a wide replacement": "{{ shots[0].note | replace('n', shots[0].note) }}",
    "a macro of itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a turn in a turn": "{% user %}{% system %}x{% endsystem %}{% enduser %}",
    "a turn in a turn by a macro": "{% macro m() %}{% user %}x{% enduser %}{% endmacro %}"
    "{% user %}{{ m() }}{% enduser %}",
    "text outside the turns": "{% user %}x{% enduser %}and this",
    "what does not exist": "{{ quary.input }}",
    "a field that does not exist": "{{ query.inpt }}",
    "the answer": "{{ query.output }}{{ query.answers }}",
    "too long": "x" * (LONGEST + 1),
    "unfinished": "{% if",
    "nested too deeply": "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
}


BIG = "{% set big = shots[0].note | replace('n', '" + "y" * 200 + "') %}"
TENFOLD = "{% set a = [a, a, a, a, a, a, a, a, a, a] %}"
HOSTILE |= {
    "a number of 5,000 digits": "{{ " + "9" * 5_000 + " }}",
    "a list of lists": "{% set a = ['x'] %}" + TENFOLD * 9 + "{{ a }}",
    "a list of lists as options": "{% set a = ['x'] %}" + TENFOLD * 9 + "{{ a | lettered }}",
    "lists that are compared": "{% set a = [1] %}"
    + TENFOLD * 9
    + "{% set b = a %}{% set a = [1] %}"
    + TENFOLD * 9
    + "{{ a == b }}",
    "a filter in a loop": BIG + "{% for a in big[:3000] %}{% if big | title %}{% endif %}{% endfor %}",
    "a filter in a constant": "{{ '" + "x" * 60_000 + "'" + " | title" * 80 + " | length }}",
    "margins": "{{ '" + "\\n" * 30_000 + "'" + " | indent(40)" * 4 + " | length }}",
    "many copies": BIG + "".join(f"{{% set a{i} = big | upper %}}" for i in range(50)),
    "many lists": BIG + "".join(f"{{% set a{i} = big | list %}}" for i in range(50)),
    "many slices": BIG + "".join(f"{{% set a{i} = big[1:] %}}" for i in range(50)),
    "a search in a loop": BIG + "{% for a in big[:9000] %}{% if 'yz' in big %}{% endif %}{% endfor %}",
    "a loop whose condition is false": BIG + "{% for a in labels %}{% for b in big if false %}{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_in_one_line(name: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError) as caught:
        _rendered(HOSTILE[name])
    assert time.process_time() - start < 5
    assert "\n" not in caught.value.what and caught.value.fix
    assert len(caught.value.what) < 500


def test_margins_are_counted_while_they_are_written() -> None:
    deep = "{% set a = [" + "labels, " * 20 + "] %}" + "{% set a = [a] %}" * 150
    with pytest.raises(UsageError, match="tojson makes too long a text"):
        _rendered(deep + "{{ a | tojson(8) | length }}")
    assert (
        _rendered("{{ labels[:1] | tojson(2) }}{{ [1, 'é'] | tojson(compact=true) }}")
        == 'user:[\n  "label 0"\n][1,"é"]'
    )


def test_names_that_do_not_exist_are_told_together() -> None:
    with pytest.raises(UsageError, match="names 'qeury', 'shosts', which do not exist; did you mean query, shots"):
        _rendered("{{ shosts }}{{ qeury.input }}")
    with pytest.raises(UsageError) as caught:
        _rendered("".join(f"{{{{ {letter * 90} }}}}" for letter in "abcdefghijk"))
    assert len(caught.value.what) < 500


def test_a_harmless_template_of_the_same_means_is_rendered() -> None:
    source = (
        "{% macro m(x) %}<{{ x | upper | replace('N', 'M') }}>{% endmacro %}"
        "{% for label in labels[:2] %}{{ loop.index }}{{ m(label) }}{{ ',' if not loop.last }}{% endfor %}"
        "{{ labels | length + 1 }}{{ shots[0].tier }}{{ query.hint | default('none') }}{{ [query.input] | tojson }}"
    )
    assert len(_rendered("{{ 'a\nb' | indent(999999999) }}")) < 100
    assert _rendered(source) == 'user:1<LABEL 0>,2<LABEL 1>201goldnone["now?"]'


TAGS = ["{% user %}", "{% enduser %}", "{{ query }}", "{#", "#}", "+++\n", "</answer>", "<|im_end|>", "Answer:"]
TEXTS = st.text(list("ab{}%#-+\n\r\"'\\ <>/|_."), max_size=12) | st.sampled_from(TAGS)


@given(st.data())
def test_no_text_of_a_row_adds_or_takes_away_a_turn(data: Any) -> None:
    def shot(i: int) -> Demonstration:
        given = [data.draw(TEXTS) for _ in range(4)]
        return Demonstration(i, str(i), given[0], given[1], "s", (given[2],), given[3], metadata={"x": given[0]})

    shots = [shot(i) for i in range(2)]
    query = Query(data.draw(TEXTS), (data.draw(TEXTS),), data.draw(TEXTS))
    task = Task("labels", (data.draw(TEXTS), data.draw(TEXTS)))
    for name in names():
        template = FileTemplate(built_in(name))
        plain = build_prompt(
            Query("q", ("o",), "c"), [Demonstration(0, "0", "i", "o", "s", ("o",), "c")] * 2, task, template
        )
        shown = build_prompt(query, shots, task, template)
        assert [m.role for m in shown.messages] == [m.role for m in plain.messages]
        assert query.input in "".join(m.content for m in shown.messages) or name == "json"


def test_a_list_is_written_as_one_whatever_filter_made_it() -> None:
    lists = _rendered("{{ labels[:2] | reverse }}{{ ['a', 'A'] | unique }}{{ 'ab' | list | first }}{{ [1, 2] | last }}")
    assert lists == 'user:["label 1", "label 0"]["a"]a2'


def test_many_macros_are_read_at_once() -> None:
    macros = "".join(f"{{% macro a{i}(q) %}}{{% endmacro %}}" for i in range(1_000))
    start = time.process_time()
    assert _rendered(macros + "{{ a1() }}" * 3_000) == "user:"
    assert time.process_time() - start < 5


def test_the_bound_is_far_from_what_a_prompt_needs() -> None:
    shots = [Demonstration(i, str(i), "word " * 2_000, "out", "s") for i in range(100)]
    prompt = build_prompt(Query("now?"), shots, LABELS)
    assert 1_000_000 < len(prompt.text) < MOST
