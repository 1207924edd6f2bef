"""The command line: the Typer apps, error reporting and exit codes. The commands are in ``commands``.

Data goes to stdout, progress and errors to stderr. At the top level, this module and the commands import only the
standard library, typer and the printing of lines; each command imports the rest in its body, so that ``--help``,
``--version`` and ``status`` start fast.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from traceback import format_exception
from typing import Annotated, Any, NoReturn

import typer

from .commands.calibrate import calibrate, calibrate_keys, calibrate_query, calibrate_runs
from .commands.check import (
    check,
    check_prune,
    check_relabel,
    flips,
    flips_prune,
    flips_show,
    skipped,
    suspects,
    suspects_prune,
    suspects_show,
)
from .commands.curate import curate, tune, tune_apply, tune_vote
from .commands.decide import (
    history,
    keep,
    prune,
    redo,
    relabel,
    restore,
    undo,
    version_delete,
    version_list,
    version_restore,
    version_save,
    version_show,
)
from .commands.evaluate import evaluate, preview
from .commands.export import diff, export, report
from .commands.help import LEARNING, OTHERS, CurateCommand, SectionedGroup
from .commands.jobs import jobs, jobs_cancel, jobs_follow, jobs_resume
from .commands.llm import llm_check, llm_record, llm_trust
from .commands.options import alone, spread
from .commands.pool import demos, index, sources, status, topics
from .commands.serve import lock, serve
from .commands.session import config, demo, review, verify
from .commands.shared import show_waiting, state
from .commands.template import template_check, template_list, template_show
from .commands.template_import import template_import
from .commands.train import (
    train_all,
    train_calibration,
    train_datamodel,
    train_fixed,
    train_ranker,
    train_rows,
    train_sources,
    train_topics,
)
from .commands.watch import audit, watch
from .engine.base.errors import Cancelled, CurateError, UsageError
from .render.terminal import end, guard, narrate, print_error, say


class CurateGroup(SectionedGroup):
    """Leaves error reporting to `_run`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Cancelled from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:  # not an error: the user asked for help
            narrate(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ctx.resilient_parsing or ctx.parent is None:  # a shell completes what is typed, or the program's own options
            return super().resolve_command(ctx, args)
        for option in self.params:
            if ctx.get_parameter_source(option.name).name == "COMMANDLINE":  # the command below would not see it
                name = option.opts[0]
                fix = f"{ctx.command_path} {args[0]} {name} …"
                raise UsageError(f"{name} stands before '{args[0]}'", fix)
        return super().resolve_command(ctx, args)


class Root(CurateGroup):
    """The program; lists groups among commands, in the order of `PANELS`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: self.commands[name] for entries in PANELS.values() for name in map(_name, entries)}


Command = Callable[..., None]
Entry = Command | tuple[Command | str, Command, *tuple[Command, ...]]
"""A command, or a group: what its name alone does, or, if nothing, its help; then the commands below it."""

PANELS: dict[str, tuple[Entry, ...]] = {
    "The pool": (
        index, status, (check, check_prune, check_relabel), verify, skipped, sources, demos,
        (suspects, suspects_show, suspects_prune), (flips, flips_show, flips_prune), topics, review,
    ),
    "Decisions": (
        curate, (tune, tune_vote, tune_apply), prune, relabel, restore, keep, undo, redo, history, diff, export, report,
        (version_list, version_save, version_list, version_show, version_restore, version_delete),
    ),
    "Selection and answers": (
        preview, evaluate, (calibrate, calibrate_query, calibrate_keys, calibrate_runs), audit, watch, lock, serve,
    ),
    LEARNING: (
        (
            "Learn from the LLM's answers.", train_sources, train_ranker, train_topics, train_fixed, train_rows,
            train_datamodel, train_calibration, train_all,
        ),
        (jobs, jobs_follow, jobs_cancel, jobs_resume),
        ("Templates: how prompts are written.", template_list, template_show, template_check, template_import),
        ("Check the LLM, record its answers, and confirm servers.", llm_check, llm_record, llm_trust),
    ),
    OTHERS: (config, demo),
}  # fmt: skip
"""The commands as ``--help`` lists them, in the order of a typical session."""


def _name(entry: Entry) -> str:
    """A group is what the functions below it are named after."""
    return entry[1].__name__.partition("_")[0] if isinstance(entry, tuple) else entry.__name__


def _app(cls: type[CurateGroup], help: str | None, **more: Any) -> typer.Typer:
    # plain help starts faster and reads the same in a pipe
    return typer.Typer(cls=cls, rich_markup_mode=None, help=help, **more)


app = _app(
    Root,
    "Curate pools of in-context-learning demonstrations: index, measure, prune, export.",
    name="icl-curate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, entries in PANELS.items():
    for entry in entries:
        if not isinstance(entry, tuple):
            app.command(cls=CurateCommand, rich_help_panel=panel)(spread(entry))
            continue
        bare, *below = entry
        helps = isinstance(bare, str)
        group = _app(CurateGroup, bare if isinstance(bare, str) else inspect.getdoc(bare), no_args_is_help=helps)
        for command in below:
            group.command(command.__name__.partition("_")[2], cls=CurateCommand)(spread(command))
        if not isinstance(bare, str):
            group.callback(invoke_without_command=True)(alone(spread(bare)))
        app.add_typer(group, name=_name(entry), rich_help_panel=panel)


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
        if any("\udc80" <= sign <= "\udcff" for word in typed for sign in word):  # bytes, as Python keeps them
            raise UsageError("the command line is not in UTF-8", "type it in a terminal that writes UTF-8")
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
    gc.set_threshold(50_000, 20, 50)  # imports and prompts are many objects and no cycles: a tenth of a command's time
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
    from .engine.jobs import STANDBY, VARIABLE

    command: Callable[[], object] = _run
    if STANDBY in os.environ:
        from .commands.prepared import steps
        from .engine.jobs.standby import become

        command = become(steps(), _run)
    guard()
    if folder := os.environ.get(VARIABLE):
        from .engine.jobs.child import work

        sys.exit(work(Path(folder), command))
    command()


if __name__ == "__main__":
    main()
