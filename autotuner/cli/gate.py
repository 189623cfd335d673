"""Commands on correctness: the gate on one variant, and the baselines of its op against the reference."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import AnySpaceName, JsonOption, StoreOption, ThreadsOption
from autotuner.cli.output import json_of, out, print_json, print_lines, say_waiting
from autotuner.values import config


def gate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="LIBRARY_OR_VARIANT",
            help='a built library, a build id, a trial\'s number, or parameters such as "IMPL=simd BLOCK_M=64"',
        ),
    ],
    space: Annotated[
        str | None, typer.Option(help="the space of the parameters, or whose problems to judge on")
    ] = None,
    study: Annotated[str | None, typer.Option(help="the study of the trial; the latest when left out")] = None,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="G8 too: memory and race sanitizers")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Puts one built variant through the whole gate and explains the verdict. Exit code 1 when it is rejected."""
    from autotuner.ops import op_of
    from autotuner.tuning import gate_one
    from autotuner.views import gate_tables
    from autotuner.views.trial_words import gate_words

    subject = gate_one.subject(target, space, store or config.store_url(), study)
    judged = gate_one.judge(subject, sanitize, listen=say_waiting)
    if as_json:
        print_json(json_of(judged.report))
    else:
        out.print(gate_tables.gate_table(judged.report))
        print_lines(gate_words(judged.outcome, op_of(judged.report.problems[0])))
    if judged.outcome.fault is not None:
        raise typer.Exit(1)


def reference(
    space: AnySpaceName = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """The op's baselines in PyTorch against float64 on every case of the gate. Exit code 1 when one is out of it."""
    from autotuner.tuning import gate_one, workbench
    from autotuner.views import gate_tables

    here = workbench.Workbench(workbench.load_space(space or workbench.default_space(), threads))
    found = gate_one.calibrate(here, listen=say_waiting)
    if as_json:
        print_json({"device": json_of(here.device), **json_of(found)})
    else:
        out.print(gate_tables.reference_table(found, here.device))
    if found.broken:
        raise typer.Exit(1)
