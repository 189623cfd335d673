"""The program: its commands, and how it ends. Only `cli` and `views` speak to people; other rooms return or raise."""

import contextlib
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from autotuner.cli import best, machine, serve, study, sweeps, tune
from autotuner.cli.output import err
from autotuner.values import program
from autotuner.values.errors import AutotunerError, InputError, OutOfTimeError, SourceError, Stopped
from autotuner.values.files import FULL, why
from autotuner.values.versions import version_of

program.consists_of(__name__)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command: Ctrl-C, a person or a service, a terminal that is closed."""
CLOSING_S = 30.0
"""Seconds for an end in good order. Python may lose a signal, as while it frees an object; what closes may wait."""


class _Grouped(TyperGroup):
    """Lists its commands under the titles of their panels, each with the first sentence of what it says of itself."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in cast(dict[str, Any], self.commands).items():
            panels.setdefault(command.rich_help_panel or "Commands", []).append((name, command.get_short_help_str(500)))
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise BrokenPipeError from None  # with its number Typer ends the program with code 1, a finding


def _group(about: str, **options: Any) -> typer.Typer:
    # Without markup help is plain text, in which an option's words have the whole rest of the line.
    return typer.Typer(help=about, cls=_Grouped, rich_markup_mode=None, add_completion=False, **options)


app = _group(
    "Finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it.",
    name="autotuner",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
TUNE, QUEUE, LOOK, USE, JUDGE, HERE = (
    *("Tune", "Leave it to workers", "Look at a study"),
    *("Use what was found", "Judge and time again", "Spaces and this machine"),
)
"""The panels of the help, in the order of use."""
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    TUNE: (tune.tune,),
    QUEUE: (sweeps.submit, sweeps.worker),
    LOOK: (study.status, study.leaderboard, study.trials, study.show, study.explain, study.compare, serve.serve),
    USE: (best.export, best.validate, study.bundle),
    JUDGE: (best.finals, best.gate, best.profile, best.regress, study.verify),
    HERE: (machine.doctor,),
}
GROUPS: dict[str, tuple[str, str, dict[str, Callable[..., None]]]] = {
    "sweep": (
        *(QUEUE, "The sweeps that were asked for."),
        {
            **{"list": sweeps.list_sweeps, "watch": sweeps.watch, "logs": sweeps.logs, "pause": sweeps.pause},
            **{"resume": sweeps.resume, "cancel": sweeps.cancel, "retry": sweeps.retry},
            "set": sweeps.set_budget,
        },
    ),
    "study": (
        *(LOOK, "The studies of a store."),
        {
            **{"list": study.list_studies, "copy": study.copy, "rename": study.rename},
            **{"note": study.note, "delete": study.delete},
        },
    ),
    "space": (HERE, "Search spaces.", {"list": machine.space_list, "show": machine.space_show}),
    "cache": (HERE, "Builds and references.", {"show": machine.cache_show, "prune": machine.cache_prune}),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__, rich_help_panel=panel)(command)
for name, (panel, about, inner) in GROUPS.items():
    group = _group(about, no_args_is_help=True)
    app.add_typer(group, name=name, rich_help_panel=panel)
    for inner_name, command in inner.items():
        group.command(inner_name)(command)
of_devices = _group("The devices that workers serve.", invoke_without_command=True, callback=sweeps.devices)
app.add_typer(of_devices, name="devices", rich_help_panel=QUEUE)
of_devices.command("clear")(sweeps.devices_clear)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="print the version and exit", is_eager=True)] = False,
) -> None:
    """Common options."""
    if show:
        typer.echo(f"autotuner {version_of('kernel-autotuner')}")
        raise typer.Exit


REFUSED = cast(type[Exception], typer.BadParameter.__mro__[2])
"""What a wrong command line raises; each version of Typer has the class elsewhere."""
INTERRUPTED = 130
STOPPED = "stopped; nothing is lost: the same command goes on where this one was"


def run() -> None:
    """Runs a command; errors become one line, exit code 2 for what the user can mend, 3 for what is ours."""
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup does with SIGHUP
            signal.signal(number, _stop)
    os.umask(os.umask(0) | stat.S_IWOTH)  # what it makes is run later: nobody else's to write
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # Typer has caught it
            raise KeyboardInterrupt
        sys.exit(code)
    except REFUSED as error:
        _refuse(error)
    except (Stopped, KeyboardInterrupt) as error:
        _fail(str(error) if isinstance(error, Stopped) else STOPPED, INTERRUPTED)
    except InputError as error:
        _fail(str(error), 2, folded=not isinstance(error, SourceError))
    except AutotunerError as error:
        _fail(str(error), 1 if isinstance(error, OutOfTimeError) else 3)
    except BrokenPipeError:  # the reader of our output, `head` for one, has gone
        _mute()
        sys.exit(141)
    except OSError as error:
        _fail(_in_words(error), 2)


def _refuse(error: Any) -> NoReturn:
    """A command line that is wrong, in one line; without a command, the help."""
    where = error.ctx.command_path if getattr(error, "ctx", None) is not None else "autotuner"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.ctx.get_help())
        sys.exit(2)
    said = error.format_message().removesuffix(".")
    _fail(f"{said}{'' if said.endswith('?') else ';'} `{where} --help` says what there is", 2)


def _in_words(error: OSError) -> str:
    """A failed system call that no room below has put into words: of our own output, of a disk, or of a file."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"")  # where a first flush has thrown away what cannot be written
    except OSError as written:
        _mute()
        return f"standard output cannot be written ({why(written)}); give it another place"
    if error.errno in FULL:
        return f"no space left on the disk ({error.filename or tempfile.gettempdir()}); free some and run it again"
    return f"{error.filename or 'a file'}: {why(error)}; mend that or give another path"


def _mute() -> None:
    """Nothing more is printed: what is left in the buffer would fail again when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """The first signal ends a command in good order, the next one at once with the same line, and so does CLOSING_S."""
    for number in (*STOPPING, signal.SIGALRM):
        signal.signal(number, _stop_now)
    signal.setitimer(signal.ITIMER_REAL, CLOSING_S)
    raise KeyboardInterrupt


def _stop_now(_signal: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # a terminal that has gone
        os.write(sys.stderr.fileno(), f"autotuner: {STOPPED}\n".encode())
    os._exit(INTERRUPTED)


def _fail(message: str, code: int, folded: bool = True) -> NoReturn:
    said = " ".join(message.split()) if folded else message
    with contextlib.suppress(OSError):  # standard error may be as full as standard output
        err.print(f"autotuner: {said}", style="red" if err.is_terminal else None)
    sys.exit(code)
