"""Commands that tune: a sweep, its finals, and the best variant timed again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from autotuner.cli.options import (
    AnySpaceName,
    JsonOption,
    StoreOption,
    StudyName,
    ThreadsOption,
    check_writable,
    open_store,
)
from autotuner.cli.output import err, json_of, out, print_json, say_where_the_gate_is_looser
from autotuner.values import config
from autotuner.values.errors import AutotunerError, InputError

if TYPE_CHECKING:
    from autotuner.run.executor import Executor
    from autotuner.store import FinalsRecord, Store
    from autotuner.tuning.finals import Step
    from autotuner.tuning.workbench import Workbench


def tune(
    space: AnySpaceName = None,
    trials: Annotated[int, typer.Option(min=1, help="stop when the study has judged this number of variants")] = 60,
    minutes: Annotated[float, typer.Option(min=0.01, help="stop this run after this number of minutes")] = float("inf"),
    sampler: Annotated[str, typer.Option(help="evolution, random, tpe, nsga2, cmaes, gp or exhaustive")] = "evolution",
    seed: Annotated[int, typer.Option(help="seed of the sampler")] = 0,
    threads: ThreadsOption = None,
    like: Annotated[str | None, typer.Option("--from", help="start from this study, its best points first")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="start without what related studies know")] = False,
    store: StoreOption = None,
    devices: Annotated[str | None, typer.Option(help="GPUs of one model: cuda:0,cuda:1 or all")] = None,
    until_converged: Annotated[
        bool, typer.Option("--until-converged", help="stop when what is left promises less than a tie")
    ] = False,
    final: Annotated[bool, typer.Option("--finals/--no-finals", help="confirm the best in fresh processes")] = True,
    output: Annotated[Path, typer.Option("--out", help="where to write the best configuration")] = Path("best.json"),
) -> None:
    """Runs a sweep, or goes on with one; ends with finals and a leaderboard, and writes the best configuration."""
    from autotuner.report import progress
    from autotuner.search.samplers import SAMPLERS
    from autotuner.store import Store
    from autotuner.tuning import workbench
    from autotuner.tuning.driver import Budget

    if sampler not in SAMPLERS:
        raise InputError(f"no sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    check_writable(output)
    file = workbench.load_space(space or workbench.default_space(), threads)
    here = workbench.Workbench(file, devices=devices)
    with closing(Store.open(store or config.store_url())) as opened, closing(here.executor()) as executor:
        with progress.Progress(out, here.space, here.device, here.conditions, trials, 60 * minutes) as shown:
            start = here.start(opened, sampler, like, cold)
            shown.starts_from(start)
            driver = here.driver(opened, executor, sampler, seed, shown.hear, start)
            driver.run(Budget(trials=trials, seconds=60 * minutes, until_converged=until_converged))
        if final:
            _confirm(opened, driver.name, here, executor)
        _conclude(opened, driver.name, output)


def _confirm(store: Store, study: str, here: Workbench, executor: Executor) -> None:
    """The finals, unless those who would be in them were in the last ones. Without them the sweep's result stands."""
    from autotuner.tuning.finals import due

    if not due(store, study, here.default_digest):
        return
    try:
        _finals(store, study, here, executor)
    except AutotunerError as error:
        out.print(f"finals: not finished: {error}; `autotuner finals` tries again", style="yellow", markup=False)


def _finals(store: Store, study: str, here: Workbench, executor: Executor, to: Console = out) -> FinalsRecord:
    from autotuner.tuning.finals import Finals

    def say(step: Step) -> None:
        to.print(f"finals: {step.text}", markup=False)

    return Finals(store, study, here.conditions, executor, here.device.environment, here.default_digest, say).run()


def finals(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Confirms the best variants of a study in fresh processes, on fresh inputs, against the winner's curse.

    Can be run again later, and on another machine with the same device and a copy of the store.
    """
    from autotuner.report import study_tables
    from autotuner.spaces.space import SpaceFile
    from autotuner.store import queries
    from autotuner.tuning import workbench

    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        of = queries.study(opened, name)
        here = workbench.Workbench(SpaceFile.model_validate_json(of.space_document))
        workbench.require_same_device(of.device, here.device)
        with closing(here.executor()) as executor:
            found = _finals(opened, name, here, executor, err if as_json else out)
    if as_json:
        print_json(json_of(found))
    else:
        out.print(study_tables.finals_table(found, of.problems[0]))


def _conclude(store: Store, study: str, output: Path) -> None:
    """The leaderboard, and the best configuration in its file."""
    from autotuner.export.best import FORMATS, write_atomically
    from autotuner.report import study_tables
    from autotuner.store import queries
    from autotuner.tuning import standings

    record = queries.study(store, study)
    out.print(study_tables.leaderboard_table(standings.leaderboard(store, study, 10), record.problems[0]))
    best = standings.best(store, study)
    if best is None:
        out.print(f"No variant of {study} was measured to the end; see `autotuner status`.", markup=False)
        return
    write_atomically(output, FORMATS["json"].render(best, record))
    out.print(f"Best configuration written to {output}; study {study}.", markup=False)
    say_where_the_gate_is_looser(best)


def race(
    study: StudyName = None,
    itself: Annotated[bool, typer.Option("--aa", help="against a second load of the same library")] = False,
    blocks: Annotated[int, typer.Option(min=6, help="interleaved blocks")] = 60,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Times the best variant again in a fresh process, against the baseline or, with --aa, against itself.

    An honest stopwatch names no winner of an A/A race.
    """
    from autotuner.tuning.race_again import race_best

    with closing(open_store(store)) as opened:
        result = race_best(opened, study, itself, blocks)
    if as_json:
        print_json({**json_of(result), "winner": result.winner})
        return
    ratio = result.ratio
    out.print(str(result.variant), markup=False)
    out.print(
        f"t_variant / t_opponent against {result.against}: {ratio.median:.4f} [{ratio.low:.4f}, {ratio.high:.4f}] over "
        f"{result.blocks} blocks; {f'faster: {result.winner}' if result.winner else 'no winner'}",
        markup=False,
    )
