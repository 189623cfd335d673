"""The options and arguments that several commands share, and how a store is opened."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from autotuner.cli.output import looks_at
from autotuner.values import config
from autotuner.values.errors import InputError

if TYPE_CHECKING:
    from autotuner.spaces.space import SpaceFile
    from autotuner.store import Store
    from autotuner.values.sweep import SweepRequest

SpaceName = Annotated[str, typer.Argument(help="a space file, or the name of one that is shipped")]
AnySpaceName = Annotated[str | None, typer.Argument(help="a space file or name; this machine's default if left out")]
StudyName = Annotated[str | None, typer.Argument(help="a study, by name or unique prefix; the latest when left out")]
WHERE = f"path or URL of the study store [${config.STORE}]"
StoreOption = Annotated[str | None, typer.Option("--store", help=WHERE, callback=looks_at)]
MOST = 2**31 - 1
"""Of any number that is given: what every database keeps."""
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="threads both sides may use, instead of the file's")
]
ArchOption = Annotated[
    str | None, typer.Option("--arch", help="GPU architecture, such as sm_89, instead of that of the GPU here")
]
ProblemOption = Annotated[
    list[str] | None,
    typer.Option("--problem", help="a problem as the tables write it, instead of the space's own; can be repeated"),
]
ProblemsOption = Annotated[
    Path | None, typer.Option("--problems", help="the same, from the tables `problems` of a TOML file")
]
PatienceOption = Annotated[float, typer.Option(min=0, help="minutes to wait for a device that another run times")]
SeedOption = Annotated[int, typer.Option(min=0, max=MOST, help="seed of what is drawn")]
QuietOption = Annotated[
    float, typer.Option("--quiet-within", min=0, metavar="MINUTES", help="wait so long for a quiet machine, at most")
]
CalmOption = Annotated[
    bool, typer.Option("--calm", help="wait for nothing, not even for a device that another run times")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def stored(store: str | None) -> Store:
    """The store that is there. Raises StoreError when there is none: a question makes none."""
    from autotuner.store import Store

    return Store.open(store or config.store_url(), create=False)


def named(store: Store, study: str | None) -> str:
    """The name of a study that is meant by a name, a unique prefix, or None for the latest. Raises StoreError."""
    from autotuner.store import queries

    return queries.resolve_study(store, study)


Asked: TypeAlias = tuple["Store", str]
"""A store that is opened, and the name of a study in it."""
OneStudy: TypeAlias = AbstractContextManager[Asked]


@contextmanager
def one_study(study: StudyName = None, store: StoreOption = None) -> Iterator[Asked]:
    """What a question about a study takes."""
    with stored(store) as opened:
        yield opened, named(opened, study)


AskedTrial: TypeAlias = tuple["Store", str, int | None]
"""The same, and the number of a trial; None: the one to use."""
OneTrial: TypeAlias = AbstractContextManager[AskedTrial]


@contextmanager
def one_trial(
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="a trial's number; the one to use when left out")
    ] = None,
    study: StudyName = None,
    store: StoreOption = None,
) -> Iterator[AskedTrial]:
    """What a question about a trial takes: its number may be left out before a study. Raises InputError."""
    is_number = trial is not None and trial.isdecimal() and len(trial) <= len(str(MOST))
    if trial is not None and not is_number and (study is not None or trial.isdecimal()):
        raise InputError(f"{trial} is not the number of a trial; `autotuner trials` lists them")
    with one_study(study if trial is None or is_number else trial, store) as (opened, name):
        yield opened, name, int(trial) if trial is not None and is_number else None


@dataclass(frozen=True)
class AskedSweep:
    """A sweep as a command line asks for it: what every command takes that asks for one."""

    space: AnySpaceName = None
    problem: ProblemOption = None
    problems: ProblemsOption = None
    trials: Annotated[
        int, typer.Option(min=1, max=MOST, help="judged variants of the study, those of earlier runs included")
    ] = 60
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="after which the command ends, finals and all waiting included")
    ] = None
    devices: Annotated[
        str | None, typer.Option(help="such as cuda:0, or cuda:0,cuda:1 or all of one model; any when left out")
    ] = None
    sampler: Annotated[
        str, typer.Option(help="evolution, random, tpe, nsga2, cmaes, gp, exhaustive, or one of another package")
    ] = "evolution"
    seed: SeedOption = 0
    threads: ThreadsOption = None
    like: Annotated[
        str | None, typer.Option("--from", help="start from this study or FILE.t4.json, its best points first")
    ] = None
    cold: Annotated[bool, typer.Option("--cold", help="start without what related studies know")] = False
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", help="module:function, or a library such as flash_attn, to beat too; repeatable"),
    ] = None
    start: Annotated[
        list[str] | None, typer.Option("--start", help='a point to judge first, as "IMPL=mma WARPS_M=4"; repeatable')
    ] = None
    first_points: Annotated[
        Literal["all", "others", "none"],
        typer.Option(help="begin with shipped points of similar problems; others: without those of nearly the same"),
    ] = "all"
    until_converged: Annotated[
        bool, typer.Option("--until-converged", help="stop when what is left promises less than a tie")
    ] = False
    finals: Annotated[bool, typer.Option("--finals/--no-finals", help="confirm the best in fresh processes")] = True
    finals_minutes: Annotated[
        float | None,
        typer.Option(
            "--finals-minutes", min=0.01, help="of the minutes; if left out 2, a third of them at most, or 20 s"
        ),
    ] = None
    patience: PatienceOption = config.PATIENCE_MINUTES
    quiet: QuietOption = 0.0
    calm: CalmOption = False

    def __post_init__(self) -> None:
        if self.space is None:
            from autotuner.devices import DEVICES

            for kind in DEVICES.values():  # while all else is imported
                kind.begin()

    @cached_property
    def source(self) -> tuple[str, int | None, list[str], Path | None]:
        """What the functions of `workbench` that load spaces take."""
        from autotuner.tuning import workbench

        problem = self.problem or []
        return self.space or workbench.default_space(problem), self.threads, problem, self.problems

    def request(self, file: SpaceFile, share: int, **more: Any) -> SweepRequest:
        """What a worker has to know to sweep a space; `share`: of how many sweeps it is one that share the minutes.
        `more` of what `request_for` takes."""
        from autotuner.jobs import queue  # takes long to import: once others import too
        from autotuner.values.sweep import SweepOptions

        like = self.like
        return queue.request_for(
            file,
            share,
            **{name: value for name, value in vars(self).items() if name in SweepOptions.model_fields},
            devices=self.devices,
            like=str(Path(like).absolute()) if like is not None and like.endswith(".json") else like,
            start=tuple(self.start or ()),
            patience_minutes=0.0 if self.calm else self.patience,
            quiet_within_minutes=0.0 if self.calm else self.quiet,
            **more,
        )


def takes(shared: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of `shared` after its own, and what `shared` makes of them as its first argument."""

    def around(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        common = list(inspect.signature(shared, eval_str=True).parameters.values())

        @functools.wraps(command)
        def called(**given: Any) -> None:
            made = shared(**{each.name: given.pop(each.name) for each in common})
            command(made, **given)

        both = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *common)]
        called.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in both}
        return called

    return around
