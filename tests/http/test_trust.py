"""A workspace from somebody else takes neither prompts nor key, and its jobs are not run."""

from __future__ import annotations

import json
import os
import pty
import stat
import sys
import threading
from pathlib import Path

import pytest
from factories.commands import Run
from factories.copies import indexed, lines
from factories.servers import Server
from icl_curate.commands import paid
from icl_curate.engine.backends.hf.loading import load_description
from icl_curate.engine.base.errors import CurateError, LLMError, UsageError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.http import trust
from icl_curate.engine.llm.asking import backend_for, destination
from icl_curate.engine.retrieval.encoder import load_encoder
from icl_curate.engine.select.session import SessionCache
from icl_curate.engine.store.settings import Settings, resolve
from icl_curate.engine.store.workspace import Workspace

KEY = "sk-the-users-own-key"


@pytest.fixture(autouse=True)
def _own_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "user" / "config.toml"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def foreign(tmp_path: Path, server: Server) -> Path:
    """A workspace whose own file names a server."""
    pool = [{"input": f"word{i} x", "output": f"o{i}"} for i in range(6)]
    asked = [{"input": "what is x", "output": "o1"}]
    workspace = indexed(tmp_path / "w", pool=lines(pool), test=lines(asked))
    (workspace.path / "config.toml").write_text(
        f'llm = "openai:stub"\nbase_url = "{server.url}"\nmethod = "bm25"\nk = 1\n'
    )
    return workspace.path


def encode(texts: object) -> object:
    raise AssertionError("no vector is wanted here")


# who gets prompts and key


@pytest.mark.parametrize(
    "command",
    [
        ["preview", "hello x", "--answer"],
        ["preview", "hello x", "--answer", "--llm", "openai:gpt-4o"],
        ["preview", "hello x", "--stability", "--json"],
        ["llm", "check"],
        ["evaluate", "-m", "zero"],
        ["evaluate", "-m", "zero", "--dry-run"],
        ["evaluate", "-m", "zero", "--background"],
    ],
)
def test_a_server_that_the_workspace_alone_names_gets_nothing(
    foreign: Path, server: Server, run: Run, command: list[str]
) -> None:
    done = run(*command, "-w", foreign)
    assert done.code == 3
    assert "the workspace's own config.toml would send prompts and your key to " + server.url in done.err
    assert f"icl-curate llm trust {server.url} -w {foreign}" in done.err
    assert KEY not in done.out + done.err
    assert not server.calls
    assert not (foreign / "jobs").exists()


@pytest.mark.parametrize("command", [["curate", "--max-calls", "9", "--yes"], ["tune"], ["evaluate", "-m", "zero"]])
def test_somebody_at_a_terminal_is_asked_about_the_server_of_a_judge(
    foreign: Path, server: Server, run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(paid, "can_ask", lambda: True)
    monkeypatch.setattr(paid, "agrees", questions.append)  # None: no
    done = run(*command, "--llm", "offline", "--metric", "judge", "--judge-llm", "openai:stub", "-w", foreign)
    assert questions == ["Trust this server for this workspace from now on?"]
    assert done.code == 3 and server.url in done.err and not server.calls


def test_once_confirmed_it_is_asked_also_by_jobs(foreign: Path, server: Server, run: Run) -> None:
    assert run("llm", "trust", server.url, "-w", foreign).code == 0
    done = run("preview", "hello x", "--answer", "-w", foreign, "--json")
    assert done.code == 0, done.err
    assert done.json["answer"]
    assert f"prompts go to stub at {server.url}" in done.err
    assert all(call.headers["authorization"] == f"Bearer {KEY}" for call in server.calls)
    assert run("evaluate", "-m", "zero", "-w", foreign, "--background").code == 0
    followed = run("jobs", "follow", "-w", foreign)
    assert followed.code == 0, followed.err
    assert f"prompts go to stub at {server.url}" in followed.err
    kept = run("llm", "trust", "-w", foreign, "--json").json
    assert kept["confirmed"] == [server.url]
    assert run("llm", "trust", "--forget", server.url, "-w", foreign).code == 0
    assert run("preview", "hello x", "--answer", "-w", foreign).code == 3


def test_a_server_that_the_user_names_needs_no_question(
    foreign: Path, server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ["preview", "hello x", "--answer", "-w", foreign]
    done = run(*ask, "--base-url", server.url)
    assert done.code == 0, done.err
    assert f"prompts go to stub at {server.url}" in done.err
    assert "prompts go to" not in run("-q", *ask, "--base-url", server.url).err
    with monkeypatch.context() as patch:
        patch.setenv("ICL_CURATE_BASE_URL", server.url)
        assert not resolve(foreign, {}).settings.base_url_by
    own = Path(os.environ["ICL_CURATE_CONFIG"])
    own.parent.mkdir()
    own.write_text(f'base_url = "{server.url}"')
    assert not resolve(foreign, {}).settings.base_url_by
    own.write_text('base_url = "http://my-own:8000/v1"')
    assert resolve(foreign, {}).settings.base_url_by == str(foreign)
    (foreign / "config.toml").write_text('llm = "openai:stub"\nbase_url = ""\n')
    found = resolve(foreign, {}).settings  # naming none does not take the user's own away
    assert (found.base_url, found.base_url_by) == ("http://my-own:8000/v1", "")
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(foreign / "config.toml"))  # the user's own by the user's own word
    (foreign / "config.toml").write_text(f'llm = "openai:stub"\nbase_url = "{server.url}"\n')
    assert not resolve(foreign, {}).settings.base_url_by


def test_every_way_from_settings_to_a_server_is_the_same_door(foreign: Path, server: Server) -> None:
    settings = resolve(foreign, {}).settings
    workspace = Workspace.open(foreign)
    for _ in range(2):  # a failure leaves nothing open behind
        with pytest.raises(trust.UnconfirmedServer), backend_for(settings, encode):  # type: ignore[arg-type]
            pass
    session_cache = SessionCache()
    with pytest.raises(trust.UnconfirmedServer):
        session_cache.backend(workspace, settings)
    trust.confirm(foreign, server.url)
    said: list[Event] = []
    with backend_for(settings, encode, Monitor(said.append)) as backend:  # type: ignore[arg-type]
        assert backend.identity()["base_url"] == server.url
    assert [event.note for event in said] == [
        f"prompts go to stub at {server.url}",
        "the workspace's own config.toml says llm openai:stub",
    ]
    assert session_cache.backend(workspace, settings).identity()["base_url"] == server.url
    local = resolve(foreign, {"llm": "hf:somewhere"}).settings
    assert destination(local) == ""
    with backend_for(local, encode):  # type: ignore[arg-type]
        pass


def test_what_was_confirmed_holds_for_one_folder_and_one_server(foreign: Path, tmp_path: Path) -> None:
    trust.confirm(foreign, "https://Models.example:443/v1/")
    for alike in ("https://models.example/v1", "HTTPS://models.EXAMPLE/v1/", " https://models.example:443/v1 "):
        trust.require(alike, str(foreign))
    for other in (
        "http://models.example/v1",
        "https://models.example:8443/v1",
        "https://models.example/v2",
        "https://models.example/V1",
        "https://models.example/v1?to=elsewhere",
        "https://models.example@evil.example/v1",
        "https://evil.example/models.example/v1",
        "https://evil.example\\@models.example/v1",
        "https://user:word@models.example/v1",
        "https://m\u043edels.example/v1",
        "https://models.example%2eevil.example/v1",
        "https://models\t.example/v1",
        "https://[bad/v1",
        "",
    ):
        with pytest.raises(trust.UnconfirmedServer) as caught:
            trust.require(other, str(foreign))
        assert caught.value.exit_code == 3
        assert "\n" not in caught.value.what
    link = tmp_path / "link"
    link.symlink_to(foreign)
    assert trust.confirmed(link) == trust.confirmed(foreign) == ["https://models.example/v1"]
    moved = foreign.rename(tmp_path / "moved")
    assert not trust.confirmed(moved)
    with pytest.raises(UsageError):
        trust.confirm(moved, "https://user:word@models.example/v1")
    with pytest.raises(UsageError):
        trust.forget(moved, "https://models.example/v1")


def test_the_line_that_mends_it_is_safe_to_paste() -> None:
    error = trust.UnconfirmedServer("http://x.example/$(date);v1", "/a folder/w")
    assert "llm trust 'http://x.example/$(date);v1' -w '/a folder/w' " in error.fix
    assert "\x1b" not in trust.UnconfirmedServer("http://x\x1b]0;t\x07/", "/w").what


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 3), ("\n", 3)])
def test_on_a_terminal_it_is_asked_once(foreign: Path, server: Server, typed: str, code: int) -> None:
    def ask() -> tuple[int, str]:
        pid, terminal = pty.fork()
        if pid == 0:
            command = ["-c", "from icl_curate.cli import main; main()", "preview", "hello x", "--answer"]
            os.execv(sys.executable, [sys.executable, *command, "-w", str(foreign)])
        said, answered = b"", False
        try:
            while chunk := os.read(terminal, 4096):
                said += chunk
                if b"[y/N]" in said and not answered:
                    assert not server.calls
                    os.write(terminal, typed.encode())
                    answered = True
        except OSError:  # it has ended
            pass
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()

    ended, said = ask()
    assert ended == code, said
    assert "[y/N]" in said
    assert bool(server.calls) == (code == 0)
    if code == 0:
        ended, said = ask()
        assert (ended, "[y/N]" in said) == (0, False), said


# the file


def test_it_is_the_users_alone_and_no_confirmation_is_lost(tmp_path: Path) -> None:
    threads = [threading.Thread(target=trust.confirm, args=(tmp_path, f"http://h{i}.example")) for i in range(12)]
    threads += [threading.Thread(target=trust.sign, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trust.confirmed(tmp_path)) == 12
    assert trust.is_signed("x", trust.sign("x"))
    assert trust.place().parent == tmp_path / "user"
    for path, mode in ((trust.place().parent, 0o700), *((path, 0o600) for path in trust.place().parent.iterdir())):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
    assert not [path for path in trust.place().parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("text", ["", "[]", '{"confirmed": 3, "secret": ""}', '{"confirmed": {}, "secret": "zz"}', "["])
def test_a_damaged_file_is_told_and_nothing_is_sent(foreign: Path, server: Server, run: Run, text: str) -> None:
    trust.confirm(foreign, server.url)
    trust.place().write_text(text)
    with pytest.raises(CurateError, match="damaged"):
        trust.confirmed(foreign)
    if text == "[]":
        done = run("preview", "hello x", "--answer", "-w", foreign)
        assert (done.code, "Traceback" in done.err) == (1, False)
        assert f"rm {trust.place()}" in done.err
        assert not server.calls


@pytest.mark.parametrize(("what", "mode"), [("file", 0o666), ("file", 0o620), ("folder", 0o777), ("folder", 0o730)])
def test_a_file_that_others_may_write_is_not_believed(
    foreign: Path, server: Server, run: Run, what: str, mode: int
) -> None:
    trust.confirm(foreign, server.url)
    signed = trust.sign("job")
    open_to_all = trust.place() if what == "file" else trust.place().parent
    was = stat.S_IMODE(open_to_all.stat().st_mode)
    open_to_all.chmod(mode)
    done = run("preview", "hello x", "--answer", "-w", foreign)
    assert done.code == 1, done.err
    assert f"chmod go-w {open_to_all}" in done.err
    assert not server.calls
    for use in (lambda: trust.is_signed("job", signed), lambda: trust.sign("job"), lambda: trust.confirmed(foreign)):
        with pytest.raises(CurateError, match="not believed"):
            use()
    open_to_all.chmod(was & ~0o022)
    assert trust.is_signed("job", signed)


def test_no_secret_is_made_where_others_may_write(tmp_path: Path) -> None:
    trust.place().parent.mkdir()
    trust.place().parent.chmod(0o777)
    with pytest.raises(CurateError, match="not believed") as alone:
        trust.sign("job")
    assert alone.value.fix == f"chmod go-w {trust.place().parent}"
    trust.place().parent.chmod(0o1777)  # as /tmp, which all use: there is no permission to take from it
    with pytest.raises(CurateError, match="not believed") as shared:
        trust.sign("job")
    assert shared.value.fix.startswith("set ICL_CURATE_CONFIG=")
    assert not trust.place().exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_believed(foreign: Path, server: Server, run: Run) -> None:
    trust.confirm(foreign, server.url)
    os.chown(trust.place(), 12345, -1)
    done = run("preview", "hello x", "--answer", "-w", foreign)
    assert (done.code, "it belongs to user 12345" in done.err) == (1, True)
    assert not server.calls


def test_a_signature_is_one_users_over_one_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trust.sign(["job", "/w", ["index"], "/"])
    assert trust.is_signed(["job", "/w", ["index"], "/"], made)
    for what in (["job", "/v", ["index"], "/"], ["job", "/w", ["export"], "/"], ["job", "/w", ["index"], "/x"]):
        assert not trust.is_signed(what, made)
    for wrong in (None, 3, "", "é", made[:-1], made.upper()):
        assert not trust.is_signed(["job", "/w", ["index"], "/"], wrong)
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "somebody" / "else.toml"))
    assert not trust.is_signed(["job", "/w", ["index"], "/"], made)
    assert not trust.place().exists()


# `preview` pays as all else does


def test_preview_answers_within_the_budget(foreign: Path, server: Server, run: Run) -> None:
    ask = ["preview", "hello x", "--answer", "-w", foreign, "--base-url", server.url]
    plan = run(*ask, "--dry-run", "--json", "--price-in", 1, "--price-out", 1).json
    assert (plan["dry_run"], plan["to_ask"], plan["destination"]) == (True, 1, f"stub at {server.url}")
    assert plan["cost"][1] > 0
    shown = run(*ask, "--dry-run")
    assert f"stub at {server.url}" in shown.out
    for kind in ("--answer", "--stability"):
        refused = run(*ask, kind, "--max-calls", 0)
        assert refused.code == 4, refused.err
        assert "0 of 0 calls" in refused.err
    refused = run(*ask, "--max-cost", 1)
    assert (refused.code, "--price-in" in refused.err) == (2, True)
    refused = run("evaluate", "-m", "zero", "-w", foreign, "--base-url", server.url, "--max-calls", 0)
    assert refused.code == 4
    assert not server.calls  # not even a probe
    done = run(*ask, "--max-calls", 8, "--answers", "generate", "-j", 1, "--json")
    assert done.code == 0, done.err
    assert {"answer", "uncertainty", "cached", "demonstrations", "prompt", "llm"} <= set(done.json)
    again = run(*ask, "--max-calls", 0, "--answers", "generate", "--json")  # what is known costs nothing
    assert (again.code, again.json["answer"], again.json["cached"]) == (0, done.json["answer"], True)
    assert len(server.asked("hello x")) == 1


@pytest.mark.parametrize("price", ["0.0", "0.000001", "5.0"])
def test_a_cost_limit_relies_on_no_price_of_the_workspaces_own_file(
    foreign: Path, server: Server, run: Run, price: str
) -> None:
    config = foreign / "config.toml"
    config.write_text(config.read_text() + f"price_in = {price}\nprice_out = {price}\nattempts = 9\nconcurrency = 3\n")
    limited = ["evaluate", "-m", "zero", "-w", foreign, "--base-url", server.url, "--max-cost", 0.0001]
    refused = run(*limited)
    assert refused.code == 2, refused.err
    assert "--price-in" in refused.err
    assert run(*limited, "--price-in", 0.001).code == 2  # the other is still the workspace's
    own = Path(os.environ["ICL_CURATE_CONFIG"])
    own.parent.mkdir()
    own.write_text("price_in = 7.0\nprice_out = 8.0\n")
    found = resolve(foreign, {}).settings
    assert (found.price_in, found.price_out) == (7.0, 8.0)
    assert run(*limited).code == 2  # the user's file means the user's LLM, not the workspace's
    assert not server.calls
    own.write_text('llm = "openai:stub"\nprice_in = 7.0\nprice_out = 8.0\n')
    assert run(*limited).code == 4
    done = run(*limited[:-1], 1, "--price-in", 0.1, "--price-out", 0.1, "--llm", "openai:stub")
    assert done.code == 0, done.err
    assert "the workspace's own config.toml says concurrency 3, attempts 9" in done.err


def test_a_cost_limit_relies_on_no_price_of_the_encoder_that_the_workspace_names(
    foreign: Path, server: Server, run: Run
) -> None:
    config = foreign / "config.toml"
    config.write_text(config.read_text() + "encoder_price = 0.0\n")
    more = foreign.parent / "more.jsonl"
    more.write_text("".join(json.dumps({"input": f"more {i}", "output": "x"}) + "\n" for i in range(9)))
    index = ["index", more, "-w", foreign, "--encoder", "openai:e", "--encoder-url", server.url, "--max-cost", 0.01]
    refused = run(*index)
    assert refused.code == 2 and "--encoder-price" in refused.err, refused
    assert not server.calls


def test_settings_made_by_hand_are_the_users_own_word() -> None:
    assert Settings(base_url="http://x").base_url_by == ""
    with pytest.raises(UsageError, match="unknown setting 'base_url_by'"):
        resolve(None, {"base_url_by": "x"})


# what a folder named as a model may do


def test_no_model_runs_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A workspace may name a folder beside it as LLM or encoder; neither is code run, nor is anybody asked to."""
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nclass Evil: pass\n"
    files = {
        "config.json": json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}),
        "modules.json": json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]),
        "tokenizer_config.json": json.dumps({"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}),
        "evil.py": code,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(LLMError, match="cannot load"):
        load_description(str(tmp_path))
    with pytest.raises(UsageError, match="cannot load the encoder"):
        load_encoder(str(tmp_path), "cpu")
    assert not ran.exists()
    assert "Do you wish" not in capsys.readouterr().out


def test_nothing_is_written_beside_a_config_that_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert trust.place() == tmp_path / "icl-curate" / "trust.json"
