"""Where a prompt is not the one that production sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.prompting.expect import LARGEST, differs, request_in

TURNS = (Message("system", "Be short."), Message("user", "Où?"), Message("assistant", "Là"), Message("user", "et où?"))


def _request(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


SAME = [(turn.role, turn.content) for turn in TURNS]


def test_the_same_request_does_not_differ() -> None:
    assert differs(_request(*SAME), TURNS) is None
    parts = [{"type": "text", "text": "O"}, {"type": "text", "text": "ù?"}]
    assert differs(_request(SAME[0], ("user", parts), *SAME[2:]), TURNS) is None
    assert differs({"prompt": Prompt(TURNS, Query(""), cue="").text, "max_tokens": 3}, TURNS) is None


@pytest.mark.parametrize(
    ("expected", "where"),
    [
        (_request(SAME[0], ("user", "Oú?"), *SAME[2:]), "turn 2 (user), byte 2: expected '\\\\xba?', not '\\\\xb9?'"),
        (_request(SAME[0], ("user", "Où? "), *SAME[2:]), "turn 2 (user), byte 4: expected ' ', not ''"),
        (_request(("developer", "Be short."), *SAME[1:]), "turn 1: expected developer, not system"),
        (_request(*SAME[:3]), "expected 3 turns, not 4"),
        ({"prompt": "Be short.\n\nOù?"}, "the prompt, byte 15: expected '', not ' Là\\n\\net où?'"),
    ],
)
def test_the_first_byte_that_differs_is_named(expected: dict[str, Any], where: str) -> None:
    assert differs(expected, TURNS) == where


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"messages": "x"},
        {"messages": [3]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
    ],
)
def test_what_is_no_request_of_texts_is_refused(expected: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the expected request"):
        differs(expected, TURNS)


@pytest.mark.parametrize(
    ("text", "about"),
    [("[]", "no object"), ("3", "no object"), ("{", "no JSON"), ("[" * 100_000, "no JSON"), ("\udcff", "no JSON")],
)
def test_a_file_without_a_request_is_refused_in_one_line(tmp_path: Path, text: str, about: str) -> None:
    (path := tmp_path / "request.json").write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match=about) as refused:
        request_in(path)
    assert "\n" not in refused.value.what and refused.value.fix.startswith("give the body")


def test_no_more_of_a_file_is_read_than_a_request_may_have(tmp_path: Path) -> None:
    import os

    with (tmp_path / "request.json").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no disk, and reading all of it would take all memory
    os.mkfifo(tmp_path / "pipe.json")
    for name, about in (("request.json", f"more than {LARGEST:,} bytes"), ("pipe.json", "a pipe"), ("no.json", "No")):
        with pytest.raises(UsageError, match=f"cannot read .*{about}"):
            request_in(tmp_path / name)
