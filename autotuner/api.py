"""The Python interface: the same sweeps, stores and gate as on the command line, as functions and objects.

    import autotuner

    study = autotuner.tune(problem, trials=60)
    print(study.best(), study.leaderboard())

What raises here is an `AutotunerError`; an `InputError` is one that the caller can mend.
docs/reference/python.md has examples.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotuner.jobs import queue
from autotuner.jobs.sweep_run import Listener, run_here
from autotuner.ops import DEFAULT_OP, OPS
from autotuner.store import Store, TrialRecord, queries
from autotuner.tuning import gate_one, of_function, workbench
from autotuner.tuning.finals import standings, validation
from autotuner.tuning.finals.standings import Best, Entry, StudySummary
from autotuner.tuning.gate_one import GateResult
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.problem import Problem
from autotuner.values.table import Range
from autotuner.values.validation import no_such, show
from autotuner.views.beliefs import StudyBeliefs, kept_beliefs
from autotuner.views.trial_words import none_passed
from autotuner.views.trials_table import flat, trials_of

if TYPE_CHECKING:
    from pandas import DataFrame

Event = object
"""What a sweep tells: an event of tuning/run/driver.py or tuning/run/waiting.py, or a `Step` of the finals."""


@dataclass(frozen=True)
class Study:
    """A study of a store. Each method opens the store for itself, so that nothing stays open between them."""

    store: str
    """Path or URL."""
    name: str
    beside: tuple[Study, ...] = ()
    """Of a call of `tune` with problems that no one variant can serve: the studies of the other ones."""

    def summary(self) -> StudySummary:
        """How far it is, and what was rejected for what."""
        with _opened(self.store) as opened:
            return standings.summary(opened, self.name)

    def best(self) -> Best | None:
        """The variant to use: of those that tie for the lead in the finals the preferred one, before any finals the
        fastest of the search. None when nothing was measured to the end."""
        with _opened(self.store) as opened:
            return standings.best(opened, self.name)

    def leaderboard(self, limit: int = 10) -> tuple[Entry, ...]:
        """The fastest variants that passed the gate: those that were confirmed first."""
        with _opened(self.store) as opened:
            return standings.leaderboard(opened, self.name, limit)

    def trial(self, number: int) -> TrialRecord:
        """One trial with its whole outcome."""
        with _opened(self.store) as opened:
            return queries.trial(opened, self.name, number)

    def rows(self) -> list[dict[str, object]]:
        """Every recorded trial by number, as the columns of `autotuner trials --csv`: verdict and reason, speedups
        (t_baseline / t_variant, higher is better), microseconds, seconds, and each parameter under its own name.

        What has no latency that stands has None there. Parameters that a variant does not have are left out.
        """
        with _opened(self.store) as opened:
            return flat(trials_of(opened, self.name))

    def trials(self) -> DataFrame:
        """The rows as a pandas DataFrame. Raises InputError where pandas is not installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise InputError("a data frame needs pandas: pip install 'kernel-autotuner[data]', or use rows()") from None
        return DataFrame(self.rows())

    def beliefs(self) -> StudyBeliefs:
        """What the study has shown: what matters, what is rejected where, what is left."""
        with _opened(self.store) as opened:
            return kept_beliefs(opened, self.name)

    def validate(
        self,
        lengths: tuple[int, int] | None = None,
        *,
        vary: Sequence[str] = (),
        minutes: float = 2.0,
        patience_minutes: float = config.PATIENCE_MINUTES,
        callbacks: Sequence[Callable[[Event], None]] = (),
    ) -> tuple[Range, ...]:
        """Tries the variants of this study's table on lengths that were not tuned, and keeps what it finds: between the
        tuned lengths, or from the least to the largest of `lengths`. The ranges that an export will have.

        Raises InputError where there is nothing to try, and as `tune` does.
        """
        from autotuner.serve import table as tables

        hear, patience_s = _told(callbacks), 60 * patience_minutes
        with _main_is_not_imported(), _opened(self.store) as opened:
            wanted = tables.to_validate(opened, self.name, lengths, vary)
            here = workbench.of_study(queries.study(opened, self.name))
            with here.held(patience_s, hear), closing(here.executor()) as executor:
                trials = here.retrials(opened, self.name, executor, hear, 60 * minutes)
                validation.validate(trials, wanted)
            return tables.table_of(opened, [self.name]).ranges

    def export(self, path: str | Path = "best.json", format: str = "json") -> Path:
        """Writes the best configuration with its proof, and the table, where finals have proven anything, over this
        study's problems and those of the studies beside it. Raises InputError when there is none."""
        from autotuner.serve import best

        target, form = Path(path), best.FORMATS.chosen(format)
        with _opened(self.store) as opened:
            names = [self.name, *(each.name for each in self.beside)]
            confirmed = [name for name in names if standings.finals(opened, name) is not None]
            best.export(opened, self.name, confirmed, target, form)
        return target


@dataclass(frozen=True)
class StudyStore:
    """A store that is there."""

    url: str
    """Path or URL."""

    def studies(self) -> tuple[StudySummary, ...]:
        """Every study at a glance, the most recently active first."""
        with _opened(self.url) as opened:
            return standings.studies(opened)

    def study(self, name: str | None = None) -> Study:
        """A study by its name or a prefix that only it has; the last active one for None. Raises StoreError."""
        with _opened(self.url) as opened:
            return Study(self.url, queries.resolve_study(opened, name))


def open_store(path: str | Path | None = None) -> StudyStore:
    """The store at a path or URL; $AUTOTUNER_STORE or studies.db for None. Raises StoreError when there is none."""
    url = str(path) if path is not None else config.store_url()
    with _opened(url):
        return StudyStore(url)


Problems = str | Problem | Sequence[str | Problem] | Path


def tune(
    subject: Problems | Callable[..., Any] = (),
    space: str | Path | Mapping[str, Sequence[int | str]] | None = None,
    *,
    problems: Problems = (),
    op: str = DEFAULT_OP,
    baseline: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = (),
    trials: int = 60,
    minutes: float = float("inf"),
    sampler: str = "evolution",
    seed: int = 0,
    threads: int | None = None,
    devices: str | None = None,
    store: str | Path | None = None,
    finals: bool = True,
    finals_minutes: float | None = None,
    patience_minutes: float = config.PATIENCE_MINUTES,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Study:
    """Runs a sweep, or goes on with one, and confirms the best in finals.

    `subject`: problems, which may also be given by their name, or a function of a module that computes `op`: it takes
    the op's tensors and, by name, what `space` maps to values. Variants of it are its calls with these, judged and
    timed like those of a kernel (docs/my-kernel.md).

    `baseline`: functions that stand beside the op's own baselines, or the names of libraries (docs/my-kernel.md).

    `problems` replace those of the space; a path is that of a file that `record` wrote. Without a space the default one
    of this machine is searched. Problems that no one variant can serve have a study each set: the first is returned,
    with the others `beside` it. They share the minutes. `trials` counts judged variants of a study, those of earlier
    runs included. Each of `callbacks` hears every event. An exception in
    one, or Ctrl-C, ends the sweep; nothing is lost, and the same call goes on. Warns where no variant was measured.

    Raises InputError, SpaceError, StoreError, OracleError or InfrastructureError.
    """
    if not callable(subject):
        if problems and subject:
            raise InputError(
                f"found {show(subject)} beside problems: give a function there, or problems once, a space by space=..."
            )
        problems = problems or subject
    file = problems if isinstance(problems, Path) else None
    listed = () if isinstance(problems, Path) else problems
    several = (listed,) if isinstance(listed, str | Problem) else tuple(listed)
    if isinstance(space, Mapping) and callable(subject):
        wanted: str | Path = of_function.space_of(subject, several, space, op)
    elif callable(subject):
        raise InputError("a function is searched over values of its parameters: space={'BLOCK': [64, 128]}")
    elif isinstance(space, Mapping):
        raise InputError(
            "a space of values is one of a function's parameters: tune(function, space={...}, problems=...)"
        )
    else:
        ops = {each.op for each in several if isinstance(each, Problem)}
        texts = [str(each) for each in several]
        wanted = space or workbench.default_space(texts, ops.pop() if ops else None)
    named = [baseline] if isinstance(baseline, str) or callable(baseline) else baseline
    loaded = workbench.load_spaces(str(wanted), threads, [str(each) for each in several], file)
    files = workbench.with_baselines(loaded, named)
    requests = [
        queue.request_for(
            each,
            trials=trials,
            share=len(files),
            minutes=None if minutes == float("inf") else minutes,
            sampler=sampler,
            seed=seed,
            devices=devices,
            finals=finals,
            finals_minutes=finals_minutes,
            patience_minutes=patience_minutes,
        )
        for each in files
    ]
    benches = [workbench.Workbench(each, devices=devices) for each in files]
    url = str(store) if store is not None else config.store_url()
    found: list[Study] = []
    with _main_is_not_imported(), Store.open(url) as opened:  # opened last: a wrong wish makes no store
        for request, here in zip(requests, benches, strict=True):
            found.append(Study(url, run_here(opened, request, here, Listener(hears=_told(callbacks)))))
            if found[-1].best() is None:
                name = found[-1].name
                warnings.warn(none_passed(name, queries.judged_count(opened, name)), stacklevel=2)
    return replace(found[0], beside=tuple(found[1:]))


def _told(callbacks: Sequence[Callable[[Event], None]]) -> Callable[[Any], None]:
    """Tells callbacks what a run tells."""

    def hear(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return hear


def tune_like(op: str, *inputs: Any, **options: Any) -> Study:
    """Tunes for one call of an op as it stands, with the arguments that the function of `load` takes and the op's own
    options. All others go to `tune`. Raises InputError where no kernel here serves such a call."""
    from autotuner.serve.record import problem_of

    if op not in OPS:
        raise InputError(no_such("op", op, OPS))
    if OPS[op].call is None:
        raise InputError(
            f"{op} does not say what a call of it computes; name the problem: tune({OPS[op].problem.FORM!r})"
        )
    own = {name: options.pop(name) for name in OPS[op].call_names & options.keys()}
    return tune(problem_of(OPS[op], inputs, own), **options)


def judge(
    variant: str | Mapping[str, int | str],
    space: str | Path | None = None,
    *,
    problem: str | None = None,
    sanitize: bool = False,
) -> GateResult:
    """Puts one variant through the whole gate: its parameters, as a mapping or as on the command line, on `problem`
    in place of the space's own. The result has the outcome and the report. Raises InputError."""
    target = variant if isinstance(variant, str) else " ".join(f"{name}={value}" for name, value in variant.items())
    with _main_is_not_imported():
        named, problems = None if space is None else str(space), [problem] if problem is not None else []
        subject = gate_one.subject(target, named, config.store_url(), None, problems=problems)
        return gate_one.judge(subject, sanitize)


def _opened(url: str) -> Store:
    return Store.open(url, create=False)


@contextmanager
def _main_is_not_imported() -> Iterator[None]:
    """Processes that are started in the block do not import the caller's main program. They need nothing of it, and a
    script without `if __name__ == "__main__"` would start the sweep once more in each of them."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in kept:
        del main.__file__
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)
