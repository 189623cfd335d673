"""Everything a command needs to work on one space on this machine: device, valid points, conditions, executor.

What searches, and what speaks to the store, is imported where a search begins: most commands need neither, and it takes
longer than all else they import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from autotuner.devices import DEVICES, Chosen, DeviceKind, Wishes
from autotuner.devices.environment import usable_cpus
from autotuner.forge.build import build, require_cache, require_compilers
from autotuner.forge.build_inputs import built_from, files_of
from autotuner.forge.family import Family, find_limits
from autotuner.forge.toolchain import Toolchain
from autotuner.forge.unread import unread
from autotuner.ops import DEFAULT_OP, OPS, Op, ahead
from autotuner.run import cage
from autotuner.run.cage import CageParts
from autotuner.run.executor import Executor
from autotuner.run.line import LineFactory
from autotuner.run.local import LocalExecutor, fork_server
from autotuner.spaces.branch import Branch
from autotuner.spaces.problem_files import Asked, asked, parsed_problem, problems_in
from autotuner.spaces.space import Space, SpaceFile
from autotuner.tuning import of_function, on_nodes
from autotuner.tuning.possible import deadlines, require_all, slow_words
from autotuner.values import config, program
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InputError, SpaceError, ToolchainError
from autotuner.values.outcome import Artifact, Device, NamedFunction
from autotuner.values.problem import Problem
from autotuner.values.validation import no_such
from autotuner.values.variant import Value, Variant, digest_of
from autotuner.values.verdict import Fault
from autotuner.values.versions import version_of

if TYPE_CHECKING:
    from autotuner.run.ray_cluster import RayCluster
    from autotuner.spaces.branch_points import BranchPoints
    from autotuner.store import Store, StudyRecord
    from autotuner.tuning.finals.retrials import Retrials, Step
    from autotuner.tuning.run.plan import Plan, Start
    from autotuner.tuning.run.waiting import Waiting
    from autotuner.values.sweep import SweepRequest

program.consists_of(__name__)

STATISTICS = "scipy.special"
"""What intervals come from: a process that judges needs it once, and imports it for half a second."""

LEARNS = "evolution"
"""The sampler that learns from other studies."""


def find_space_file(name: str) -> Path:
    """A space file by path, or by name among those that are shipped. Raises SpaceError with the names there are."""
    path, shipped = Path(name), config.spaces_dir() / f"{name}.toml"
    if path.suffix == ".toml" or (path.exists() and not path.is_dir()):
        return path
    if shipped.is_file():
        return shipped
    if path.is_dir():
        raise SpaceError(f"{name} is a folder; name the space file in it, as {path / 'space.toml'}")
    if name.startswith("("):
        raise SpaceError(f"{name!r} is a problem, not a space: give it by --problem, in Python as problems")
    known = sorted(file.stem for file in config.spaces_dir().glob("*.toml"))
    raise SpaceError(f"{no_such('space', name, known)}, or give a .toml file")


def default_space(problems: Sequence[str] = (), op: str | None = None) -> str:
    """The space to tune on the best kind of device here: of that op, else of the op that writes the first of these
    problems as it stands, else of the usual op. Raises InputError where there is none."""
    writers = [each for text in problems[:1] for each in OPS.values() if _knows(each, text)]
    writers.sort(key=lambda each: (not _knows(each, problems[0], served=True), not each.default_spaces))
    named = op or (writers[0].name if writers else DEFAULT_OP)
    why: list[str] = []
    for kind in sorted(DEVICES.values(), key=lambda kind: -kind.preference):
        space = OPS[named].default_spaces.get(kind.name)
        missing = kind.missing() if space is not None else None
        if space is not None and missing is None:
            return space
        why += [f"it is served on {kind.name}: {missing}"] if missing else []
    raise InputError(f"the op {named} cannot be tuned here: {'; '.join(why) or 'no space is shipped for it'}")


def _knows(op: Op, text: str, served: bool = False) -> bool:
    """Whether the text is a problem of the op; or one that it refuses though it knows the words."""
    try:
        op.problem.parse(text)
    except (ValueError, InputError) as error:
        return isinstance(error, ValidationError) and not served
    return True


def load_space(
    name: str, threads: int | None = None, problems: Sequence[str] = (), problems_file: Path | None = None
) -> SpaceFile:
    """The space file of that name or path. `threads` replaces what it allows, and its problems are replaced by
    `problems`, in the form in which the op writes them, and those of `problems_file`. Raises SpaceError or InputError.
    """
    files = load_spaces(name, threads, problems, problems_file)
    if len(files) > 1:  # refused, with the field in which they differ
        SpaceFile.load(find_space_file(name), find_limits, Asked([each for file in files for each in file.problems]))
    return files[0]


def load_spaces(
    name: str,
    threads: int | None = None,
    problems: Sequence[str] = (),
    problems_file: Path | None = None,
    each: bool = False,
) -> tuple[SpaceFile, ...]:
    """As `load_space`; problems that no artifact serves together are the problems of several spaces. With `each` every
    problem has a space: they need not have anything in common."""
    path = find_space_file(name)
    file = SpaceFile.load(path, find_limits)
    groups = asked(_problems(file, problems, problems_file))
    if each:
        groups = [Asked([one]) for group in groups for one in group.problems]
    files = [_for_all_lengths(SpaceFile.load(path, find_limits, group)) for group in groups] or [file]
    if each and not groups:
        alone = "mean" if isinstance(file.objective, tuple) else file.objective
        files = [file.model_copy(update={"problems": (one,), "objective": alone}) for one in file.problems]
    return tuple(_with_threads(one, threads) for one in {one.problems: one for one in files}.values())


def with_baselines(files: Sequence[SpaceFile], given: Sequence[str | Callable[..., Any]]) -> tuple[SpaceFile, ...]:
    """The same spaces with baselines of the user's: functions, module:function or a library. Raises InputError."""
    found = of_function.baselines(given, files[0].problems[0].op)
    return tuple(each.model_copy(update={"baselines": found}) for each in files)


def _for_all_lengths(file: SpaceFile) -> SpaceFile:
    """The file without the values that compile lengths in, where the problems that a caller gave have several."""
    if not _several_lengths(file):
        return file
    table = Family.find(file.family, near=Path(file.path).resolve().parent).table(file.backend)
    fixing = {impl: implementation.fixed_lengths for impl, implementation in table.items()}
    return file.with_branches(_free_of(each, fixing.get(each.impl)) for each in file.branches)


def _free_of(branch: Branch, fixing: str | None) -> Branch:
    """The branch without the value 1 of a parameter that compiles the lengths in, where it has others."""
    values = tuple(value for value in branch.parameters.get(fixing or "", ()) if value != 1)
    if fixing is None or not values:
        return branch
    default = values[0] if branch.default[fixing] == 1 else branch.default[fixing]
    changed = {"parameters": {**branch.parameters, fixing: values}, "default": {**branch.default, fixing: default}}
    return branch.model_copy(update=changed)


def _several_lengths(file: SpaceFile) -> bool:
    return len({tuple(problem.lengths.values()) for problem in file.problems}) > 1


def _problems(file: SpaceFile, problems: Sequence[str], problems_file: Path | None) -> list[tuple[Problem, float]]:
    """Those that a caller has given, with their weights."""
    op = file.problems[0].op
    found = [(parsed_problem(text, op), 0.0) for text in problems]
    return found + (problems_in(problems_file, op) if problems_file is not None else [])


def _with_threads(file: SpaceFile, threads: int | None) -> SpaceFile:
    require_choices(file, Wishes(threads=threads))
    return file if threads is None else file.model_copy(update={"threads": threads})


def require_choices(file: SpaceFile, wishes: Wishes) -> None:
    """Raises SpaceError for a wish that has no meaning for the kind of device of the space."""
    kind = kind_of(file)
    if file.threads != "all" and "threads" not in kind.choices:
        raise SpaceError(f"{file.path}: threads: a space for {kind.name} has no such key; leave it out")
    for name, wish in wishes._asdict().items():
        if wish is not None and name not in kind.choices:
            raise SpaceError(f"{file.path}: --{name}: a space for {kind.name} has no such choice; leave it out")


def kind_of(file: SpaceFile) -> DeviceKind:
    """The kind of device that a space is for. Raises SpaceError with the kinds there are."""
    try:
        return DEVICES[file.backend]
    except KeyError as error:
        raise SpaceError(f"{file.path}: backend: {error.args[0]}") from None


def choose_device(file: SpaceFile, arch: str | None = None, devices: str | None = None) -> Chosen:
    """The devices that a space is for: those of this machine, or, with `arch`, an architecture that is not here.

    Raises SpaceError or InputError when there is none.
    """
    require_choices(file, Wishes(arch=arch, devices=devices))
    threads = file.threads if isinstance(file.threads, int) else None
    kind = kind_of(file)
    chosen = kind.choose(Wishes(threads, arch, devices))
    around = {**chosen.device.environment, **cage.described(kind.cage)}
    return chosen._replace(device=chosen.device.model_copy(update={"environment": around}))


def admit_every_implementation(space: Space, family: Family | None = None) -> None:
    """Refuses a space whose parameters are not those that its sources read, or whose problems they do not serve, before
    anything is built. Raises SpaceError or KernelError."""
    family = family or Family.find(space.file.family, near=Path(space.file.path).resolve().parent)
    for branch, first in zip(space.branches, space.first, strict=False):
        family.admit(variant_at(space, first), space.file.problems[0])
        parameter = family.implementation(space.file.backend, branch.impl).fixed_lengths
        if parameter and _several_lengths(space.file) and 1 in space.file.branch(branch.impl).parameters[parameter]:
            where = f"{space.file.path}: parameters.{parameter}"
            raise SpaceError(f"{where}: 1 compiles the lengths in, but the problems have several; leave it out")


def variant_at(space: Space, index: int) -> Variant:
    """The variant at a point of the space."""
    return Variant.of(space.file.family, space.file.backend, space.point(index))


def point_of(space: Space, text: str) -> dict[str, Value]:
    """The point that `text` says as NAME=VALUE ...; what it does not say is near the default point of its branch.

    It need not be valid. Raises InputError for a name or a value that the space has not."""
    odd = next((word for word in text.split() if "=" not in word), None)
    if odd is not None:
        raise InputError(f"{odd}: expected NAME=VALUE, as in BLOCK_M=64")
    given = dict(word.split("=", 1) for word in text.split())
    unknown = sorted(set(given) - set(space.values))
    if unknown:
        raise InputError(f"{space.name}: {no_such('parameter', unknown[0], space.values)}")
    values: dict[str, Value] = {}
    for name, value in given.items():
        known = {str(each): each for each in space.values[name]}
        if value not in known:
            raise InputError(f"{name}={value}: {space.name} has {name} = {', '.join(known)}")
        values[name] = known[value]
    return space.completed(values)


class Workbench:
    """One space on this machine."""

    def __init__(
        self, file: SpaceFile, arch: str | None = None, devices: str | None = None, cluster: RayCluster | None = None
    ) -> None:
        """Finds the device, the kernel family and the compiler and enumerates the space. With `arch`, such as sm_89,
        a space is built for that architecture, whatever device is here. `devices` names those to judge on; with
        `cluster` they are those of its nodes.

        Raises SpaceError, KernelError, ToolchainError, or InputError when there is no such device.
        """
        self._cluster = cluster
        self._tried: Future[None] | None = None
        self.chosen = (
            choose_device(file, arch, devices)
            if cluster is None
            else on_nodes.chosen(cluster, partial(choose_device, file))
        )
        self.device = self.chosen.device
        require_all(file, kind_of(file))
        self.space = Space.enumerate(file, self.device.facts)
        self.toolchain = toolchain_for(self.device)
        family = Family.find(file.family, near=Path(file.path).resolve().parent)
        admit_every_implementation(self.space, family)
        made_from = built_from(family, file.backend, self.toolchain)
        self.family = family.model_copy(update={"built_from": made_from})
        formula = [made.digest] if (made := self.family.op) is not None and made.source is not None else []
        self.built_from = digest_of([made_from, version_of("torch"), *formula])
        threads = int(self.device.facts.get("THREADS_ALLOWED", 1))
        self.conditions = Conditions(
            problems=file.problems, cache=file.cache, objective=file.objective, threads=threads, seeds=fresh_seeds()
        )

    def variant(self, index: int) -> Variant:
        """The variant at a point of the space."""
        return variant_at(self.space, index)

    @property
    def remarks(self) -> list[str]:
        """What takes long, and what a look at the sources shows, before anything is built; lines for a person."""
        slow = slow_words(self.conditions.problems, kind_of(self.space.file))
        return [*slow, *dict.fromkeys(line for branch in self.space.branches for line in self.unread(branch))]

    def unread(self, branch: BranchPoints) -> list[str]:
        """What a look at the sources of a branch shows."""
        return unread(self.family, self.space.file.backend, branch.impl, branch.values, self.toolchain)

    @property
    def default_digest(self) -> str:
        """Digest of the variant at the space's default point."""
        return self.variant(self.space.default_index).digest

    def plan(self, sampler: str = "evolution", seed: int = 0, start: Start | None = None) -> Plan:
        """What a run on the study of this space is to do. A new study has what it starts from, of `start.first` the
        points that are valid here."""
        from autotuner.tuning.run.plan import Plan, Start

        given = start or Start()
        return Plan(
            self.space,
            self.device,
            self.conditions,
            sampler,
            seed,
            self.built_from,
            start=given._replace(first=[point for point in given.first if self.space.index_of(point) is not None]),
            environments=self.chosen.environments,
            builds_ahead=DEVICES[self.device.backend].overlap,
            who_disturbs=self.who_disturbs,
        )

    def build_all(self, points: Sequence[int]) -> list[Artifact | Fault]:
        """The variants at these points, built side by side on all CPUs. Raises as `executor`."""
        require_cache()
        require_compilers(self.toolchain)

        def one(point: int) -> Artifact | Fault:
            return build(self.family, self.variant(point), self.conditions.compiled_for, self.toolchain)

        with ThreadPoolExecutor(usable_cpus()) as pool:
            return list(pool.map(one, points))

    def start(self, store: Store | None, request: SweepRequest) -> Start:
        """What a new study of this space starts from, nothing where it has begun: the points that a sweep asks for, the
        first points of its family, and the known points of the nearest related study, for a sampler that learns from
        them, or else those of the study that it is like.

        Raises StoreError when there is no such study, InputError when it has nothing to give or a point is not valid
        here, and KernelError where the file of first points is wrong.
        """
        from autotuner.tuning.run.plan import Start
        from autotuner.tuning.transfer import first_points, start

        if request.like is not None and request.cold:
            raise InputError("--from starts from a study and --cold from none; leave one of them out")
        points = [point_of(self.space, text) for text in request.start]
        for text, point in zip(request.start, points, strict=True):
            if self.space.index_of(point) is None:
                raise InputError(f"--start {text!r}: no valid point of {self.space.name} here; `space show` says why")
        learns = not request.cold and (request.like is not None or request.sampler == LEARNS)
        found = start(store, self.plan().record, self.space, request.like) if learns else Start()
        hints: dict[int, float] = {}
        if request.sampler == LEARNS and request.first_points != "none":
            hints = first_points(self.space, self.family.folder, request.first_points == "others")
        return found._replace(first=[*points, *found.first], hints=hints)

    def held(self, patience_s: float, listen: Callable[[Waiting], None]) -> AbstractContextManager[None]:
        """Holds the devices against other autotuners of this machine, whoever's they are, while the block runs; waits
        for them as long as patience lasts.

        Raises InputError naming who has them.
        """
        from autotuner.tuning.run.waiting import held

        return held(self.chosen.locks, self.device.name, patience_s, listen)

    def retrials(
        self, store: Store, study: str, executor: Executor, listen: Callable[[Step], None], seconds: float, **more: Any
    ) -> Retrials:
        """A study of this space whose trials are judged again, which should take so long; `more` of its fields."""
        from autotuner.tuning.finals.retrials import Retrials

        return Retrials(store, study, self.conditions, executor, self.device.environment, listen, seconds, **more)

    def who_disturbs(self) -> str:
        """Who uses the devices beside us now, in words; "" where nobody can be seen."""
        if self._cluster is not None:
            return "who disturbs a node cannot be seen from here"
        return DEVICES[self.device.backend].who_disturbs(self.chosen)

    def begin(self) -> None:
        """Begins what the processes of `executor` wait for: the compilers are tried, and then build what the harness
        itself runs on the device."""
        if self._cluster is None:
            pool = ThreadPoolExecutor(1)
            self._tried = pool.submit(_try_compilers, self.toolchain)
            pool.submit(kind_of(self.space.file).make_ready, self.toolchain)  # what is wrong then, the processes say
            pool.shutdown(wait=False)

    def executor(self) -> Executor:
        """Processes that judge variants for this space, on this machine, with a lane for each chosen device, or on the
        nodes of the cluster. Raises InputError when nothing can be kept, and ToolchainError where the compilers refuse
        what is nearly nothing."""
        if self._cluster is not None:
            require_cache()
            return on_nodes.executor(self._cluster, partial(Workbench, self.space.file), self)
        kind, family, problems = DEVICES[self.device.backend], self.family, self.conditions.problems
        baselines = self.space.file.baselines
        require_cache()
        executor = LocalExecutor(
            LineFactory(self.device, self.toolchain, family, baselines=baselines),
            preload=_imports(kind, family, problems, baselines),
            deadlines=deadlines(problems, kind),
            builders=kind.builders(len(self.chosen.lanes)),
            overlap=kind.overlap,
            jobs_per_process=kind.jobs_per_process,
            devices=self.chosen.lanes,
            cage=CageParts.of(kind.cage, reads=(family.folder, *family.include_dirs, *_sources(family, kind.name))),
            who_disturbs=self.who_disturbs,
            before_calibration=lambda conditions: ahead.begin(kind.name, conditions.problems, conditions.seconds),
        )
        try:
            if self._tried is None:
                require_compilers(self.toolchain)  # while the executor's server imports torch
            else:
                self._tried.result()
        except ToolchainError:
            executor.close()
            raise
        return executor


def _try_compilers(toolchain: Toolchain) -> None:
    require_cache()
    require_compilers(toolchain)


def toolchain_for(device: Device) -> Toolchain:
    """The compilers for a device. Raises ToolchainError with the remedy."""
    return DEVICES[device.backend].toolchain(device)


def begin_imports(file: SpaceFile) -> None:
    """Has what forks the processes import torch, while all else is made ready."""
    family = Family.find(file.family, near=Path(file.path).resolve().parent)
    fork_server(_imports(kind_of(file), family, file.problems, file.baselines))


def _imports(
    kind: DeviceKind, family: Family, problems: Sequence[Problem], baselines: tuple[NamedFunction, ...]
) -> list[str]:
    """What processes import before they are forked: also what a module of the user's could change there."""
    judges = [f"autotuner.gate.{name}" for name in ("launching", "references", "diagnosis")]
    judges.append(f"{OPS[problems[0].op].package}.tensors")
    named = bool(baselines) or any(each.python is not None for each in family.table(kind.name).values())
    return [kind.module, *program.modules(), *ahead.imports(kind.name, problems, named), STATISTICS, *judges]


def _sources(family: Family, device: str) -> list[Path]:
    """Every file of the family's sources for that kind of device, also those that lie beside its folder: the sanitizers
    compile a variant again."""
    implementations = family.document.devices.get(device, {}).values()
    names = [name for each in implementations for name in (each.source, each.host) if name]
    there = [path for name in names if (path := family.folder / name).is_file()]
    return list(files_of(there, tuple(family.include_dirs)))


def of_study(record: StudyRecord) -> Workbench:
    """The workbench of a study, on a device of its model. Raises InputError where this is another, and what a workbench
    raises."""
    file = SpaceFile.stored(record.space_document)
    then, now = record.device, choose_device(file).device
    if (then.backend, then.name) != (now.backend, now.name):
        raise InputError(f"the study is of {then.name}, this is {now.name}: that needs a device of that model")
    return Workbench(file)
