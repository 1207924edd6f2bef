"""A prompt by a function of the user's: what it is given, what it may return, and that it is a pure function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from factories.own_code import Make, modules
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.prompts import AnswerForm
from icl_curate.engine.pool.records import Demonstration, Message, Query, Task
from icl_curate.engine.prompting.function import FunctionTemplate, own
from icl_curate.engine.prompting.template import build_prompt, question_of
from icl_curate.engine.store.settings import Settings

TASK = Task("labels", ("billing", "order"))
HISTORY = (Message("system", "Be kind."), Message("user", "hello"), Message("assistant", "hi"))
SHOTS = [
    Demonstration(i, f"d{i}", f"text {i}", "billing", "s", metadata={"tier": "gold", "rationale": "r"})
    for i in range(2)
]
QUERY = Query(
    "where?", ("yes", "no"), "a passage", ("no",), "q", 3, HISTORY, {"tier": "silver", "label": "order", "cot": "no"}
)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    yield from modules(tmp_path / "own", monkeypatch)


def _messages(module: str, query: Query = QUERY) -> tuple[Message, ...]:
    return build_prompt(query, SHOTS, TASK, FunctionTemplate(f"{module}:prompt"), "best-first").messages


def test_it_is_given_plain_values_and_only_the_fields_that_it_names(named: Make) -> None:
    module = named(
        "import json\ndef prompt(query, shots): return json.dumps([query, shots])\nprompt.icl_reads = ['tier']"
    )
    query, shots = own(f"{module}:prompt", "template").given(QUERY, SHOTS[:1])
    assert query == {
        "input": "where?",
        "options": ["yes", "no"],
        "context": "a passage",
        "history": [{"role": turn.role, "content": turn.content} for turn in HISTORY],
        "tier": "silver",
    }
    assert shots == [
        {
            "id": "d0",
            "input": "text 0",
            "output": "billing",
            "source": "s",
            "options": [],
            "context": "",
            "history": [],
            "tier": "gold",
            "rationale": "r",
        }
    ]
    assert FunctionTemplate(f"{module}:prompt").reads == {"tier"}
    with pytest.raises(UsageError, match="no field 'tier'"):
        _messages(module, Query("where?"))


def test_it_returns_a_text_or_messages(named: Make) -> None:
    text = named("def prompt(query, shots): return query['input'] + str(len(shots))")
    assert _messages(text) == (Message("user", "where?2"),)
    chat = named(
        "def prompt(query, shots):\n"
        "    turns = [{'role': 'user', 'content': shot['input']} for shot in shots]\n"
        "    return [{'role': 'developer', 'content': 'Route.'}, *turns, {'role': 'user', 'content': query['input']}]\n"
    )
    assert [turn.role for turn in _messages(chat)] == ["developer", "user", "user", "user"]
    assert question_of(FunctionTemplate(f"{chat}:prompt"), QUERY) == "where?"


def test_it_says_of_itself_what_the_head_of_a_file_does(named: Make) -> None:
    module = named(
        "def prompt(query, shots): return query['input']\n"
        "prompt.icl_answer = '<team>{{ output }}</team>'\nprompt.icl_stop = ['</team>']\nprompt.icl_reasons = True\n"
    )
    prompt = build_prompt(QUERY, SHOTS, TASK, FunctionTemplate(f"{module}:prompt"))
    assert (prompt.form, prompt.stop, prompt.reasons) == (AnswerForm("<team>", "</team>"), ("</team>",), True)


def test_an_answer_that_a_library_reads_in_its_own_way(named: Make) -> None:
    module = named(
        "from collections.abc import Callable\nfrom dataclasses import dataclass\n"
        "from icl_curate.engine.pool.prompts import AnswerForm\n"
        "@dataclass(frozen=True)\n"
        "class Shouted(AnswerForm):\n    parse: Callable[[str], str] = str.lower\n"
        "    def read(self, reply): return self.parse(reply)\n"
        "def prompt(query, shots): return query['input']\n"
        "prompt.icl_answer = Shouted('<', '>')\n"
    )
    template = FunctionTemplate(f"{module}:prompt")
    prompt = build_prompt(QUERY, SHOTS, TASK, template)
    assert len(template.digest) == 12 and template.form.read("BILLING") == "billing"
    assert prompt.as_json()["answer"] == {"before": "<", "after": ">", "quoted": False}


@pytest.mark.parametrize("said", ["answer = '<t>{{ output }}</t>'", "stop = ['</t>']", "reasons = True"])
def test_a_declared_version_hides_no_change_of_what_is_read(named: Make, said: str) -> None:
    text = "def prompt(query, shots): return query['input']\nprompt.icl_version = 3\n"
    plain, same, other = (FunctionTemplate(named(text + more) + ":prompt") for more in ("", "", f"prompt.icl_{said}\n"))
    assert plain.digest == same.digest != other.digest


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("import itertools\nn = itertools.count()\ndef prompt(q, s): return str(next(n))", "other messages when it is"),
        ("def prompt(q, s): raise RuntimeError('two\\nlines')", "fails: RuntimeError: two lines"),
        ("def prompt(q, s): raise SystemExit(2)", "fails: SystemExit: 2"),
        ("def prompt(q): return ''", "fails: TypeError"),
        ("def prompt(q, s): return 3", "returned int 3"),
        ("def prompt(q, s): return []", "returned list"),
        ("def prompt(q, s): return [{'role': 'boss', 'content': 'x'}]", "returned list"),
        ("def prompt(q, s): return [{'role': 'user', 'content': ['x']}]", "returned list"),
        ("async def prompt(q, s): return 'x'", "returned coroutine"),
        ("prompt = 3", "is not a function"),
        ("def prompt(q, s): return 'x'\nprompt.icl_answer = 'none'", "icl_answer is 'none', without one"),
        ("def prompt(q, s): return 'x'\nprompt.icl_stop = 'x'", "icl_stop is 'x'"),
        ("def prompt(q, s): return 'x'\nprompt.icl_reads = 'tier'", "icl_reads is 'tier'"),
    ],
)
def test_what_is_wrong_with_it_is_told_in_one_line(named: Make, text: str, about: str) -> None:
    with pytest.raises(UsageError, match=about) as caught:
        _messages(named(text))
    assert "\n" not in caught.value.what and caught.value.fix


def test_a_field_that_it_does_not_name_is_named_by_the_fix(named: Make) -> None:
    with pytest.raises(UsageError, match="KeyError: 'tier'") as caught:
        _messages(named("def prompt(query, shots): return query['tier']"))
    assert "prompt.icl_reads = ['tier']" in caught.value.fix


def test_what_it_changes_in_its_values_changes_no_row(named: Make) -> None:
    module = named(
        "def prompt(query, shots):\n"
        "    query['tags'].append('x'); shots[0]['output'] = 'changed'\n"
        "    return str(query['tags'])\nprompt.icl_reads = ['tags']\n"
    )
    query = Query("where?", fields={"tags": ["a"]})
    assert _messages(module, query) == _messages(module, query) == (Message("user", "['a', 'x']"),)
    assert query.fields == {"tags": ["a"]} and SHOTS[0].output == "billing"


def test_settings_of_template_files_are_not_of_a_function(named: Make) -> None:
    from icl_curate.engine.store.settings import resolve

    module = named("def prompt(query, shots): return query['input']")
    settings = resolve(None, {"template": f"{module}:prompt"}, {}).settings
    assert isinstance(settings.prompt_template, FunctionTemplate)
    assert settings.prompted_by == f"{module}:prompt ({settings.prompt_template.digest})"
    for name in ("instruction", "answer_prefix", "prompt_format"):
        with pytest.raises(UsageError, match=name):
            resolve(None, {"template": f"{module}:prompt", name: "SQ-A"}, {})


def test_scores_of_calibration_rounds_are_not_left_out_in_silence(named: Make) -> None:
    template = FunctionTemplate(named("def prompt(query, shots): return query['input']") + ":prompt")
    with pytest.raises(UsageError, match="shows no scores"):
        build_prompt(QUERY, SHOTS, TASK, template, marks=["Example [1] (Uncertainty Score: 3)", ""])


def test_no_code_is_imported_before_a_prompt_is_written() -> None:
    assert Settings(template="absent_module:prompt").template  # nothing is looked for
    with pytest.raises(UsageError, match="absent_module"):
        _ = Settings(template="absent_module:prompt").prompt_template
