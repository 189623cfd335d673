"""The program: its commands, and how it ends. Only `cli` and `report` speak to people; the rooms below return values or
raise."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from types import FrameType
from typing import Annotated

import typer

from autotuner import __version__
from autotuner.cli import ask, export, gate, space, tune
from autotuner.cli.output import err
from autotuner.values.errors import AutotunerError, InputError

app = typer.Typer(
    name="autotuner",
    help="Finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
space_app = typer.Typer(help="Search spaces.", no_args_is_help=True)
app.add_typer(space_app, name="space")
space_app.command("list")(space.space_list)
space_app.command("show")(space.space_show)
for command in (
    space.doctor,
    tune.tune,
    tune.finals,
    tune.race,
    gate.gate,
    gate.reference,
    ask.status,
    ask.leaderboard,
    ask.best,
    ask.show,
):
    app.command()(command)
app.command("explain")(ask.explain_study)
app.command()(export.export)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="print the version and exit", is_eager=True)] = False,
) -> None:
    """Common options."""
    if show:
        typer.echo(f"autotuner {__version__}")
        raise typer.Exit


def run() -> None:
    """Runs a command; errors become one line, exit code 2 for what the user can mend, 3 for what is ours."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except InputError as error:
        _fail(str(error), 2)
    except AutotunerError as error:
        _fail(str(error), 3)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(f"no space left on the disk ({error.filename or tempfile.gettempdir()}); free some and run it again", 2)
    except KeyboardInterrupt:
        _fail("stopped; nothing is lost: the same command goes on where this one was", 130)
    except BrokenPipeError:  # the reader of our output, `head` for one, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> None:
    err.print(f"autotuner: {' '.join(message.split())}", style="red" if err.is_terminal else None, markup=False)
    sys.exit(code)
