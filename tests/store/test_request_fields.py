"""What users set of a request: the forms it is written in, what is refused, and what a stranger's workspace may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.store.request_fields import OURS, TRANSPORT, format_of, table_of
from icl_curate.engine.store.settings import CONFIG, Settings, knobs, resolve

SECRET = "s3cret-of-the-user"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "user.toml"))
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


def settings(workspace: Path, flags: dict[str, Any], environ: dict[str, str] | None = None) -> Settings:
    return resolve(workspace, flags, environ or {}).settings


def test_a_table_is_the_same_in_a_file_a_variable_and_flags(workspace: Path) -> None:
    wanted = {"api-key": "${KEY}", "X-Team": "a: b"}
    user = workspace.parent / "user.toml"
    user.write_text('[headers]\n"api-key" = "${KEY}"\nX-Team = "a: b"\n')
    by_file = settings(workspace, {}).headers
    user.unlink()
    by_variable = settings(workspace, {}, {"ICL_CURATE_HEADERS": json.dumps(wanted)}).headers
    assert json.loads(by_file) == json.loads(by_variable) == wanted and by_file == by_variable
    pairs = {"headers": ["api-key: ${KEY}", "X-Team: ${A}: b"], "query_params": ["api-version=2024-10-21", "q=a=b"]}
    given = settings(workspace, pairs)
    assert json.loads(given.headers) == {"api-key": "${KEY}", "X-Team": "${A}: b"}
    assert json.loads(given.query_params) == {"api-version": "2024-10-21", "q": "a=b"}
    body = settings(workspace, {"extra_body": '{"b": {"c": 1}, "a": [1.5, true, null]}'}).extra_body
    assert body == '{"a":[1.5,true,null],"b":{"c":1}}'


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (["</a>", "\n"], ("</a>", "\n")),
        ("</a>", ("</a>",)),
        ('["</a>", "]"]', ("</a>", "]")),
        ("[/INST]", ("[/INST]",)),
    ],
)
def test_stop_is_a_list_or_a_text(value: Any, texts: tuple[str, ...], workspace: Path) -> None:
    assert settings(workspace, {"stop": value}).stop == texts


def test_what_is_not_set_stays_as_it_was(workspace: Path) -> None:
    assert settings(workspace, {"stop": [], "headers": [], "extra_body": ""}) == Settings()


@pytest.mark.parametrize("name", OURS)
def test_extra_body_holds_nothing_that_the_request_says_itself(name: str, workspace: Path) -> None:
    with pytest.raises(UsageError, match=f"extra_body may not hold {name}"):
        resolve(workspace, {"extra_body": {name: SECRET}}, {})


BAD: list[tuple[str, Any]] = [
    ("headers", {"X-Key": f"{SECRET}\r\nX-Evil: 1"}),
    ("headers", {"X-Key": f"{SECRET}\n"}),
    ("headers", {"X-Key": f"{SECRET}é"}),
    ("headers", {"X Key": SECRET}),
    ("headers", {"X-Key:": SECRET}),
    ("headers", {"X-Key\n": SECRET}),
    ("headers", {"": SECRET}),
    ("headers", {"X-Key": [SECRET]}),
    ("headers", {"X-Key": SECRET, "x-key": SECRET}),
    ("headers", f'{{"X-Key": "{SECRET}"'),
    ("headers", [f"X-Key {SECRET}"]),
    ("headers", [f"X-Key: {SECRET}"]),  # a command line is stored with its job
    ("headers", [f"X-Key: ${{A}} {SECRET}", f"X-Key: {SECRET}"]),
    ("query_params", {"code": f"{SECRET}\n"}),
    ("query_params", {"code": 1}),
    ("query_params", [f"{SECRET}"]),
    ("extra_body", SECRET),
    ("extra_body", f'["{SECRET}"]'),
    ("extra_body", {"a": float("nan"), "b": SECRET}),
    ("extra_body", {"a": SECRET * 2_000}),
    ("extra_body", "[" * 100_000),
    *(("headers", {name.title(): SECRET}) for name in TRANSPORT),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_table_that_cannot_be_sent_is_refused_without_its_values(name: str, value: Any, workspace: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(workspace, {name: value}, {})
    assert SECRET not in caught.value.what + caught.value.fix
    assert name.rstrip("s") in caught.value.what or "header" in caught.value.what
    assert "\n" not in caught.value.what and caught.value.fix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "responses"),
        ("system_role", "tool"),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("temperature", -1.0),
        ("temperature", float("inf")),
        ("reasoning_effort", "very high"),
        ("stop", [""]),
        ("stop", [1]),
        ("response_format", "yaml"),
        ("response_format", "schema:"),
        ("response_format", "schema:missing.json"),
    ],
)
def test_values_that_no_server_takes_are_refused(name: str, value: Any, workspace: Path) -> None:
    with pytest.raises(UsageError, match=f"{name}|missing.json"):
        resolve(workspace, {name: value}, {})


def test_a_response_format_is_what_is_sent_of_it(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"team": {"type": "string"}}}
    (tmp_path / "bare.json").write_text(json.dumps(schema))
    (tmp_path / "whole.json").write_text(json.dumps({"name": "team", "schema": schema, "strict": False}))
    assert json.loads(format_of("json", tmp_path)) == {"type": "json_object"}
    assert json.loads(format_of("schema:bare.json", tmp_path)) == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": True},
    }
    assert json.loads(format_of("schema:whole.json", tmp_path))["json_schema"]["strict"] is False
    for text in ("[]", "{}", "{", '"x"', "[" * 100_000, json.dumps({"type": "x" * 30_000})):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(UsageError, match=r"bad\.json"):
            format_of("schema:bad.json", tmp_path)


# a workspace of somebody else


@pytest.mark.parametrize("table", ['headers = {X-Key = "${OPENAI_API_KEY}"}', 'query_params = {a = "${HOME}"}'])
def test_a_workspaces_own_file_says_nothing_of_headers_and_urls(table: str, workspace: Path) -> None:
    (workspace / CONFIG).write_text(table)
    with pytest.raises(UsageError, match="which only you may") as caught:
        resolve(workspace, {}, {})
    assert "OPENAI_API_KEY" not in caught.value.what and "HOME" not in caught.value.what
    (workspace.parent / "user.toml").write_text(table)
    resolve(workspace, {}, {})  # the user says the same
    (workspace / CONFIG).write_text(f"{table.split()[0]} = {{}}")
    with pytest.raises(UsageError, match="which only you may"):
        resolve(workspace, {}, {})


def test_its_extra_body_is_told_and_must_be_short_enough_for_that(workspace: Path) -> None:
    (workspace / CONFIG).write_text('reasoning_effort = "high"\nextra_body = {service_tier = "priority"}')
    told = settings(workspace, {}).told_by
    assert 'extra_body {"service_tier":"priority"}' in told and "reasoning_effort high" in told
    assert "extra_body" not in settings(workspace, {"extra_body": "{}"}).told_by  # the user's own stands before it
    (workspace / CONFIG).write_text(f'extra_body = {{a = "{" " * 600}", service_tier = "priority"}}')
    with pytest.raises(UsageError, match="which only you may"):
        resolve(workspace, {}, {})
    (workspace / CONFIG).write_text("extra_body = {n = 100}")
    with pytest.raises(UsageError, match="may not hold n"):
        resolve(workspace, {}, {})


def test_its_schema_is_a_file_of_its_own(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"type": "number"}')
    (workspace / "own.json").write_text('{"type": "string"}')
    (workspace / "link.json").symlink_to(tmp_path / "other.json")
    monkeypatch.chdir(tmp_path)
    for outside in ("../other.json", str(tmp_path / "other.json"), "link.json", "~/other.json"):
        (workspace / CONFIG).write_text(f'response_format = "schema:{outside}"')
        with pytest.raises(UsageError, match="which only you may"):
            resolve(workspace, {}, {})
    (workspace / CONFIG).write_text('response_format = "schema:own.json"')
    assert '"type":"string"' in settings(workspace, {}).response_format
    assert '"type":"number"' in settings(workspace, {"response_format": "schema:other.json"}).response_format


def test_what_is_stored_and_shown_has_only_names(workspace: Path) -> None:
    (workspace.parent / "user.toml").write_text(
        f'headers = {{X-Key = "{SECRET}"}}\nquery_params = {{code = "{SECRET}", v = "1"}}'
    )
    resolved = resolve(workspace, {}, {})
    assert SECRET in resolved.settings.headers
    shown = knobs(resolved.settings)
    assert (shown["headers"], shown["query_params"]) == ("X-Key", "code, v")
    assert SECRET not in json.dumps([shown, resolved.as_json()])


def test_a_table_is_kept_in_one_form() -> None:
    assert table_of("extra_body", {"b": 1, "a": "é"}) == table_of("extra_body", '{"a": "\\u00e9", "b": 1}')
