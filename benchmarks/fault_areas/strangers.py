"""Workspaces, settings and trust files from somebody else: nobody's files are read, and nobody's money is spent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb

from .harness import KEY, Tally, complaint, scratch, wanted
from .server import StubServer
from .world import LABELS, MARKER, QUERY, World, with_key

SECRET = "what-the-users-own-file-says"
OUTSIDE = (
    "(SELECT content FROM read_text('{file}'))",
    "(SELECT decode(content) FROM read_blob('/proc/self/environ'))",
    "(SELECT string_agg(line, ' ') FROM read_csv('{file}', header = false, columns = {{'line': 'VARCHAR'}}))",
    "(SELECT max(content) FROM query('FROM read_text(''{file}'')'))",
)
"""Ways to read a file of the user within a query."""
DATABASES = {
    "a view": "CREATE OR REPLACE VIEW active AS SELECT * REPLACE ({outside} AS input) FROM pool",
    "the view below it": """
        CREATE OR REPLACE VIEW pool AS SELECT * REPLACE ({outside} AS input) FROM demonstrations WHERE split = 'pool';
        CREATE OR REPLACE VIEW active AS FROM pool""",
    "a macro for lower": "CREATE MACRO lower(x) AS {outside}",
    "a macro for arg_max": "CREATE MACRO arg_max(a, b) AS {outside}",
    "a table macro for unnest": "CREATE MACRO unnest(x) AS TABLE SELECT {outside} AS unnest",
    "a macro in another schema": "CREATE SCHEMA more; CREATE MACRO more.lower(x) AS {outside}",
    "a view with a file's name": "CREATE VIEW given_columns AS SELECT {outside} AS a",
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("demos", "-n", "1000", "--json"),
    ("export", "{out}"),
    ("preview", QUERY, "-m", "bm25", "--json"),
    ("evaluate", "-m", "zero,bm25", "--limit", "4", "--json"),
)
PRICES = ("price_in = 0.0\nprice_out = 0.0", "price_in = 1e-9\nprice_out = 1e-9", "price_in = 0.0")


def database(world: World, folder: Path, sql: str, words: tuple[str, ...]) -> list[str]:
    workspace = world.copy(world.plain, folder)
    file, out = folder / "own.txt", folder / "out.jsonl"
    file.write_text(SECRET)
    with duckdb.connect(str(workspace / "workspace.duckdb")) as con:
        con.execute(sql.replace("{file}", str(file)))
    given = [word.replace("{out}", str(out)) for word in words]
    found = world.commands.run(*given, "-w", workspace, environment=with_key())
    told = found.said + (out.read_text() if out.exists() else "")
    leaks = SECRET in told or KEY in told
    return [
        complaint(found),
        "handed out what a foreign database reads" if leaks else "",
        "a foreign database was used" if found.code != 5 else "",
    ]


def prices(world: World, folder: Path, config: str) -> list[str]:
    workspace = world.copy(world.plain, folder)
    with StubServer(LABELS, MARKER) as server:
        (workspace / "config.toml").write_text(f'llm = "openai:dearest"\nattempts = 50\n{config}\n')
        words = ("evaluate", "-m", "zero", "--base-url", server.url, "--max-cost", "0.0001", "-w", workspace)
        found = world.commands.run(*words, environment=with_key())
        asked = bool(server.calls)
    return [complaint(found), "a foreign price disarms the cost limit" if asked or found.code != 2 else ""]


def trust_file(world: World, folder: Path, spoil: Callable[[Path], object]) -> list[str]:
    workspace = world.copy(world.plain, folder)
    own = folder / "user" / "config.toml"
    environment = with_key() | {"ICL_CURATE_CONFIG": str(own)}
    with StubServer(LABELS, MARKER) as server:
        (workspace / "config.toml").write_text(f'llm = "openai:stub"\nbase_url = "{server.url}"\n')
        world.commands.run("llm", "trust", server.url, "-w", workspace, environment=environment)
        spoil(own.with_name("trust.json"))
        words = ("preview", QUERY, "-m", "bm25", "--answer", "-w", workspace)
        found = world.commands.run(*words, environment=environment)
        asked = bool(server.calls)
    return [complaint(found), "believed a trust file that others may write" if asked or not found.code else ""]


def link(world: World, folder: Path, name: str) -> list[str]:
    workspace = world.copy(world.plain, folder)
    file = folder / "own.txt"
    file.write_text(SECRET)
    planted = workspace / name
    planted.parent.mkdir(exist_ok=True)
    planted.unlink(missing_ok=True)
    planted.symlink_to(file)
    found = world.commands.run("index", "-w", workspace)
    spoilt = file.read_text() != SECRET
    return [
        complaint(found),
        "wrote where a foreign link leads" if spoilt else "",
        "printed what a foreign link leads to" if SECRET in found.said else "",
    ]


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    cases: dict[str, Callable[[Path], list[str]]] = {}
    for what, sql in DATABASES.items():
        for i, outside in enumerate(OUTSIDE[:1] if short else OUTSIDE):
            words = COMMANDS[(i + len(cases)) % len(COMMANDS)]
            whole = sql.replace("{outside}", outside.replace("{{", "{").replace("}}", "}"))
            cases[f"{what}, way {i}: {words[0]}"] = lambda folder, s=whole, w=words: database(world, folder, s, w)
    for config in PRICES:
        cases[f"prices: {config!r}"] = lambda folder, c=config: prices(world, folder, c)
    spoils: dict[str, Callable[[Path], object]] = {
        "file 666": lambda path: path.chmod(0o666),
        "file 620": lambda path: path.chmod(0o620),
        "folder 777": lambda path: path.parent.chmod(0o777),
    }
    if os.getuid() == 0:
        spoils["another owner"] = lambda path: os.chown(path, 12345, -1)
    for name, spoil in spoils.items():
        cases[f"trust: {name}"] = lambda folder, s=spoil: trust_file(world, folder, s)
    for name in ("config.toml", "review.json", "workspace.duckdb.wal", "tmp/index.lock", "tmp/create.lock"):
        cases[f"link: {name}"] = lambda folder, n=name: link(world, folder, n)
    tally = Tally("strangers")
    for name, case in cases.items():
        if wanted(name):
            with scratch(world.root, "strangers") as folder:
                tally.case(name, case(folder))
    return [tally]
