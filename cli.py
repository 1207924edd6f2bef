"""The command line: the Typer apps, error reporting and exit codes. The commands are in ``commands``.

Data goes to stdout, progress and errors to stderr. At the top level, this module and the commands import only the
standard library, typer and the printing of lines; each command imports the rest in its body, so that ``--help``,
``--version`` and ``status`` start fast.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from traceback import format_exception
from typing import Annotated, Any, NoReturn

import typer

from .commands.audit import audit
from .commands.calibrate import calibrate
from .commands.check import check
from .commands.config import config
from .commands.curate import curate
from .commands.decide import history, prune, relabel, restore
from .commands.demo import demo
from .commands.evaluate import evaluate
from .commands.export import diff, export
from .commands.help import LEARNING, OTHERS, CurateCommand, SectionedGroup
from .commands.jobs import jobs, jobs_cancel, jobs_follow, jobs_resume
from .commands.llm import llm_check, llm_record, llm_trust
from .commands.lock import lock
from .commands.pool import demos, index, sources, status
from .commands.preview import preview
from .commands.report import report
from .commands.review import review
from .commands.serve import serve
from .commands.shared import show_waiting, state
from .commands.topics import topics
from .commands.train import (
    train_all,
    train_calibration,
    train_datamodel,
    train_ranker,
    train_rows,
    train_sources,
    train_topics,
)
from .commands.version import version_delete, version_list, version_restore, version_save, version_show
from .commands.watch import watch
from .engine.base.errors import Cancelled, CurateError
from .render.terminal import end, guard, narrate, print_error, say


class CurateGroup(SectionedGroup):
    """Leaves error reporting to `_run`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Cancelled from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help:  # not an error: the user asked for help
            narrate(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


def _group(help: str, **more: Any) -> typer.Typer:
    # plain help starts faster and reads the same in a pipe
    return typer.Typer(cls=CurateGroup, rich_markup_mode=None, help=help, **more)


app = _group(
    "Curate pools of in-context-learning demonstrations: index, measure, prune, export.",
    name="icl-curate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
llm_app = _group("Check the LLM, record its answers, and confirm servers.", no_args_is_help=True)
train_app = _group("Learn from the LLM's answers.", no_args_is_help=True)
jobs_app = _group("Manage background jobs: list, follow, cancel, resume.")
version_app = _group("Keep states of the pool by name: save, list, show, restore, delete.")

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "The pool": (index, status, check, sources, demos, topics, review),
    "Decisions": (curate, prune, relabel, restore, history, diff, export, report),
    "Selection and answers": (preview, evaluate, calibrate, audit, watch, lock, serve),
    OTHERS: (config, demo),
}
"""The commands as ``--help`` lists them, in the order of a typical session."""

for panel, commands in PANELS.items():
    for command in commands:
        app.command(cls=CurateCommand, rich_help_panel=panel)(command)
for command in (llm_check, llm_record, llm_trust):
    llm_app.command(command.__name__.removeprefix("llm_"), cls=CurateCommand)(command)
for command in (train_sources, train_ranker, train_topics, train_rows, train_datamodel, train_calibration, train_all):
    train_app.command(command.__name__.removeprefix("train_"), cls=CurateCommand)(command)
for command in (jobs_follow, jobs_cancel, jobs_resume):
    jobs_app.command(command.__name__.removeprefix("jobs_"), cls=CurateCommand)(command)
for command in (version_save, version_list, version_show, version_restore, version_delete):
    version_app.command(command.__name__.removeprefix("version_"), cls=CurateCommand)(command)
app.add_typer(version_app, name="version", rich_help_panel="Decisions")
app.add_typer(train_app, name="train", rich_help_panel=LEARNING)
app.add_typer(jobs_app, name="jobs", rich_help_panel=LEARNING)
app.add_typer(llm_app, name="llm", rich_help_panel=LEARNING)
jobs_app.callback(invoke_without_command=True)(jobs)
version_app.callback(invoke_without_command=True)(version_list)


def _version(value: bool) -> None:
    if value:
        from .engine.base.packages import VERSION

        say(f"icl-curate {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress and not what was done, only errors.")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Disable colours (or set NO_COLOR).")] = False,
) -> None:
    from .engine.store import locks

    state.quiet = quiet
    locks.on_wait = show_waiting
    if no_color:
        os.environ["NO_COLOR"] = "1"


def _run() -> NoReturn:
    """Run the command line and exit. Every error is one line, a command that fixes it and the documented exit code;
    with ``--json`` it is one object, usage errors included."""
    from .engine.base.files import fault
    from .engine.base.packages import lacking

    typed = sys.argv[1:]
    state.json = as_json = "--json" in takewhile("--".__ne__, typed)
    try:
        end(typer.main.get_command(app).main(typed, "icl-curate", standalone_mode=False) or 0)
    except CurateError as error:
        what, fix, code = error.what, error.fix, error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "format_message"):  # from the parser; Typer's class names differ between releases
            context = getattr(error, "ctx", None)
            what, code = " ".join(error.format_message().split()), getattr(error, "exit_code", 2)
            fix = f"{context.command_path if context else 'icl-curate'} --help"
        elif (refused := fault(error)) is not None:  # from the disk, outside the workspace
            what, fix, code = refused.what, refused.fix, refused.exit_code
        elif isinstance(error, ImportError) and (missing := lacking(error)) is not None:
            what, fix, code = missing.what, missing.fix, missing.exit_code
        else:
            from .engine.store.unexpected import TRACEBACK, unexpected

            if os.environ.get(TRACEBACK):
                narrate("".join(format_exception(error)))
            told = unexpected(error)
            what, fix, code = told.what, told.fix, told.exit_code
    print_error(what, fix, code, as_json)
    sys.exit(code)


def main() -> None:
    """Entry point of the ``icl-curate`` command; ends the process."""
    from .engine.base.packages import spare_aiohttp

    ended: list[int] = []
    spare_aiohttp()
    atexit.register(_leave, ended)  # registered first, so called last: after threads and libraries
    try:
        run()
    except SystemExit as stop:
        ended.append(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
        raise


def _leave(ended: Sequence[int]) -> None:
    """Exit at once. Tearing down the interpreter takes seconds with torch loaded, and makes DuckDB print what is still
    in use."""
    if not ended:  # an uncaught error: the interpreter reports it
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(ended[0])


def run() -> None:
    """Run the command in ``sys.argv``; raises `SystemExit` at the end."""
    from .engine.jobs import VARIABLE

    guard()
    if folder := os.environ.get(VARIABLE):
        from .engine.jobs.child import work

        sys.exit(work(Path(folder), _run))
    _run()


if __name__ == "__main__":
    main()
