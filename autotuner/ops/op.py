"""What an op says of itself: a record of small parts. Only `Op.tensors`, `Op.signature` and `Baseline.answer` import
torch, when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from autotuner.values.problem import Problem, Shape
from autotuner.values.variant import Value

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from autotuner.ops.tensors import Symmetry, Tensors


class OpCase(NamedTuple):
    """Sizes and how the inputs are drawn, chosen for the mistakes that they show."""

    shape: Shape
    distribution: str
    label: str = ""
    """Goes before the case's name in reports."""


class Cases(NamedTuple):
    """The shapes on which a variant is judged. Where a variant serves some lengths only, the nearest ones take their
    place."""

    smoke: Shape
    """One small launch: is everything written, and nothing else?"""
    quick: Callable[[Problem], tuple[OpCase, ...]]
    """Few cases for problems like this one that show nearly every mistake that the whole matrix shows."""
    full: Callable[[Problem, tuple[int, ...]], Iterator[OpCase]]
    """The rest of the matrix for problems like this one, with lengths around the variant's own tile."""
    tuned: Callable[[Problem], Shape]
    """A tuned problem with less of the same work."""
    copied: Shape
    """Where the output is compared with each baseline's, bit by bit."""
    invariant: Shape
    repeated: Shape
    """Many independent parts, for the launches that must all give the same bits."""
    soak: Shape
    between: Shape
    """What runs between two launches that are compared, on the CPU; `between_large` where launches are quick."""
    between_large: Shape
    demanding: str
    """The distribution that shows a shortcut: of what runs between, and of a tuned problem once it was timed."""
    sanitized: Callable[[tuple[int, ...]], tuple[Shape, ...]]
    """A few small ragged shapes for the sanitizers, one above the variant's own tile."""
    tile: Callable[[Mapping[str, Value], Mapping[str, int]], tuple[int, ...]]
    """The variant's own tile, rows first, from its parameters and resources."""
    alike: Callable[[Problem], Problem | None] = lambda problem: None
    """A smaller problem on whose ordinary or demanding inputs outputs are as far off as on this one's, such as one with
    fewer parts that are drawn alike; None where there is none."""
    beyond: frozenset[str] = frozenset()
    """Distributions on which libraries are known to be wrong: a variant must be right there, and a baseline that is
    not is raced all the same, as people use it."""


class Relation(NamedTuple):
    """What must hold between the outputs on a case's inputs and those on other inputs, without a reference."""

    inputs: Tensors
    """The other inputs."""
    compared: Callable[[Tensors, Tensors], tuple[Tensor, Tensor]]
    """From the outputs on the case's inputs and on the other ones: two tensors that must be equal."""
    detail: str
    """What is wrong where they are not."""
    within: float = 0.0
    """How far the two may be apart; 0: not in a bit."""
    before: Tensors | None = None
    """What takes the place of the case's inputs, where these are not to be compared with."""


class Invariant(NamedTuple):
    """A check of an op's own, exact or nearly so (G3)."""

    code: str
    asserts: str
    cause: str
    relations: Callable[[Problem, Tensors, int], Iterator[Relation]]
    """Of a case: its problem, its inputs and a seed for what is drawn."""
    shape: Shape | None = None
    """None: that of `Cases.invariant`."""
    applies: Callable[[Problem], bool] = lambda problem: True


Relations = Callable[[Problem, "Tensors", int], Iterator[Relation]]


def invariant(code: str, asserts: str, cause: str) -> Callable[[Relations], Invariant]:
    """Makes an invariant of the function that gives its relations."""
    return lambda relations: Invariant(code, asserts, cause, relations)


def imported_when_called(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that imports torch: what reads a report wants the words beside it alone."""
    return lambda *given: getattr(import_module(module), name)(*given)


class Input(NamedTuple):
    """A tensor that a variant reads."""

    name: str
    dtype: str
    """The element type, by torch's name."""
    shape: tuple[str | int, ...]
    """Of each dimension its size, or the name of its size: a field of the problem."""
    most: str | None = None
    """Of integers: the size that they are at most, and 1 is the least that is ordinary."""
    strided: bool = False
    """Rows, the last dimension, are dense; all other strides are multiples of 16 bytes, 0 included. False: all is
    dense."""


class Output(NamedTuple):
    """A tensor that a variant writes, and how its errors are taken together."""

    name: str
    dtype: str
    """As those of an input, and so the next two; but no two elements of an output share a place."""
    shape: tuple[str | int, ...]
    strided: bool = False
    row: int = 1
    """Trailing dimensions of a row: T2 is relative to the largest number of a row."""
    slice: int = 2
    """Trailing dimensions of a slice: T3 is relative to a slice's norm. Slices do not know of each other."""
    unit: float = 0.0
    """Errors are relative to numbers of this size at least. Of a logarithm 1: its error is a factor of what it is of,
    however near to 0 it is itself."""


def shape_of(tensor: Input | Output, problem: Problem) -> Shape:
    """The sizes of an input or an output of the problem."""
    return tuple(size if isinstance(size, int) else int(getattr(problem, size)) for size in tensor.shape)


class Baseline(NamedTuple):
    """Somebody else's implementation of the op, in torch."""

    forward: Callable[[Problem], Callable[..., Tensors]]
    """For a problem a function of the inputs, and of what is made `beside` them; making it imports what it calls.
    Calling it raises RuntimeError where it does not take the problem."""
    devices: frozenset[str]
    """The kinds of torch device that it runs on."""
    settled: Callable[[Problem, Tensors, Tensors], Tensors] = lambda problem, inputs, answer: answer
    """From inputs and its answer: the answer, with what its authors leave open put as the op defines it. It is judged
    so, and timed without."""
    beside: Callable[[Problem, Tensors], Tensors] = lambda problem, inputs: ()
    """From the inputs: what a program makes of them once for many calls, such as a mask for all layers of a model. It
    is not timed. Sets of inputs that a symmetry of the op made together have it in common."""
    is_made: Callable[[Problem, str], bool] | None = None
    """None: there is nothing to make. Else it is made for one problem, which takes long, and this says for a kind of
    torch device whether that was done: only those that are timed are asked for, not the gate's cases."""
    takes: Callable[[Problem], bool] = lambda problem: True
    """Whether it is asked about problems of this kind at all."""
    writes_code: bool = False
    """It writes machine code as it runs, whatever the element type: a cage lets it do so."""
    own: Callable[..., Any] | None = None
    """The function that the user named, of such a one. It may be compiled anew for each problem."""

    @property
    def made_for_each(self) -> bool:
        """Whether it is made for one problem."""
        return self.is_made is not None

    def answer(self, problem: Problem, inputs: Tensors) -> Tensors:
        """What it gives on these inputs. Raises RuntimeError where it does not take the problem, and DeviceFullError
        where the device has no memory left for it."""
        from autotuner.ops.tensors import full_is_no_refusal

        with full_is_no_refusal():
            return self.forward(problem)(*inputs, *self.beside(problem, inputs))


OWN: dict[str, Baseline] = {}
"""The functions that a user named as baselines, in the processes of that study."""


class OpTensors(Protocol):
    """The op in tensors: a module with these functions, which take tensors of any device."""

    BASELINES: Mapping[str, Baseline]
    """By name; the fastest that takes a problem becomes what variants are compared with."""
    PEER: str
    """The baseline whose error is shown beside a variant's."""
    BETWEEN: Mapping[str, str]
    """By kind of torch device: the baseline that runs between two launches that are compared."""

    def inputs(self, problem: Problem, distribution: str, seed: int) -> Tensors:
        """Drawn on the CPU, rounded to the element type. Same seed, same tensors. They lie as the problem says."""

    def fresh(self, problem: Problem, inputs: Tensors, seed: int) -> Tensors:
        """Other ordinary inputs, quickly made of these, from which nothing that was computed before follows. Or other
        sets of them, of sets that differ: then the first dimension of each tensor is the sets."""

    def symmetry(self, problem: Problem, seed: int, sets: int, device: torch.device) -> Symmetry:
        """Drawn symmetries, one a set: they change the inputs between samples of a race."""

    def outputs(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Empty outputs beside the inputs."""

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The outputs in float64, of exactly these inputs."""

    def emulation(self, problem: Problem, inputs: Tensors) -> Tensors:
        """What the textbook algorithm gives in the problem's dtype, returned in float64: tolerances come from it."""

    def reordered(
        self, problem: Problem, inputs: Tensors, exact: Tensors
    ) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
        """The emulation with the terms of its sums in other orders, where one order may be lucky: the number of the
        output, the index of the rows, and what they come to in float64. The module's function with the name of one of
        `Op.emulations` gives the same."""


class Words(NamedTuple):
    """The op in words, for people."""

    baseline: str
    """What tables call the baseline."""
    axes: tuple[str, ...]
    """What the first dimensions of every output are called."""
    distributions: Mapping[str, str]
    case: Callable[[Shape, Mapping[str, str]], str]
    """The sizes of a case, and the macros of the artifact that it was judged on, in words."""
    nonfinite: str
    """What usually makes an output that is not finite; so do the next two for errors in every row."""
    every_row: str
    some_columns: str
    tail: Callable[[Mapping[str, str], int], str | None] = lambda macros, row: None
    """What it points to that every row from this one on is wrong and none before, where the op knows better than that
    a tail was dropped."""


class OpCall(NamedTuple):
    """The function of torch that computes the op, and which problem a call of it is: what models call, what is recorded
    of them, and what exports serve (docs/reference/packages.md)."""

    problem: Callable[[tuple[Tensor, ...], Mapping[str, Any]], Problem]
    """Of the tensors and the options of a call. Raises ValueError where it is none of the op's problems."""
    options: Callable[[Problem], dict[str, Any]]
    """Of a problem: with them the function computes it."""
    reasons: tuple[str, ...]
    """Words for AT_SHAPES, AT_STRIDES and the op's own reasons (kernels/abi/dispatch.h), in that order."""
    more: frozenset[str] = frozenset()
    """Names of options of a problem that no argument of the function says."""
    strided: bool = False
    """Whether its tensors may lie otherwise than dense."""
    made_once: Callable[[Problem, Tensors], dict[str, Tensor]] = lambda problem, tensors: {}
    """Of the tensors: what is for torch alone, and a model makes once for many calls."""


class Op(NamedTuple):
    """All that the other rooms ask of an op."""

    name: str
    package: str
    """The op's own package of Python, with two modules that import torch: `tensors`, which is an OpTensors; and, where
    it has a call, `signature`, the one statement of the names, types and defaults of its arguments."""
    problem: type[Problem]
    inputs: Callable[[Problem], tuple[Input, ...]]
    """In the order of at_call.in (kernels/abi/variant.h)."""
    outputs: Callable[[Problem], tuple[Output, ...]]
    """In the order of at_call.out."""
    ordinary: str
    """The distribution of inputs that no family may be excused from."""
    cases: Cases
    invariants: tuple[Invariant, ...]
    """In order of cost."""
    distance: Callable[[Problem, Problem], float]
    """How far two problems are apart, in doublings and changes (docs/method/search.md)."""
    usual: Callable[[Mapping[str, str]], Problem]
    """A problem to judge a variant on that is compiled with these macros."""
    words: Words
    abi: Callable[[], Path]
    """The folder of the op's own part of the ABI: headers, and launch.cpp where a device's variants need a launcher."""
    default_spaces: Mapping[str, str]
    """By kind of device: the space that is tuned when none is named."""
    compiled: Callable[[Problem], bool] = lambda problem: False
    """Whether torch's compiler makes one of its baselines for the problem."""
    libraries: Mapping[str, str] = MappingProxyType({})
    """What a user may name as a baseline: functions of the package's module `libraries`, and what pip calls each."""
    call: OpCall | None = None
    """None: models are not asked for calls of it (`record`, `load`, `tune_like`), and it is exported as json alone."""
    made: OpTensors | None = None
    """In the place of the package's `tensors`: made from a formula (ops/derived.py)."""
    source: Path | None = None
    """The file of that formula."""
    emulations: tuple[str, ...] = ()
    """What an implementation's tolerance may name: others than the op's own, by the largest of all of their errors."""
    equals_baseline: Callable[[Problem], str | None] = lambda problem: None
    """Why every right output of the problem may be bitwise a baseline's, where that is so."""

    @property
    def digest(self) -> str:
        """Of the op's sources: what is remembered of its references is keyed by it."""
        own = "" if self.source is None else digest_of_file(self.source)
        return own + digest_of_folder(Path(str(import_module(self.package).__file__)).parent)

    def tensors(self) -> OpTensors:
        """The op in tensors. Imports torch."""
        if self.made is not None:
            return self.made
        found = import_module(f"{self.package}.tensors")
        return cast(OpTensors, getattr(found, "TENSORS", found))

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The op's own and the user's, by name."""
        return {**self.tensors().BASELINES, **OWN}

    @property
    def signature(self) -> ModuleType:
        """Of an op with a call: its arguments, as packages have a copy of the file. Imports torch."""
        return import_module(f"{self.package}.signature")

    @property
    def hook(self) -> ModuleType:
        """Of the op that models of transformers are hooked for: `computes` and `masks`. Imports torch."""
        return import_module(f"{self.package}.hook")

    @property
    def torch(self) -> OpCall:
        """The call of an op that has one."""
        assert self.call is not None
        return self.call

    @property
    def call_names(self) -> frozenset[str]:
        """Of all that a call may be given by name."""
        return self.torch.more.union(signature(self.signature.arguments).parameters)

    def over(self, baselines: Iterable[str]) -> str:
        """What speedups over these pinned baselines are over, in words: the user's by their names."""
        theirs = [name for name in dict.fromkeys(baselines) if ":" in name or name in self.libraries]
        return " and ".join(theirs) or self.words.baseline

    def place(self, index: tuple[int, ...]) -> str:
        """Where an element, a row or a slice of an output is, in words."""
        return ", ".join(f"{name} {i}" for name, i in zip(self.words.axes, index, strict=False))


@cache
def digest_of_file(path: Path) -> str:
    """As it was when it was first asked for: where a process is caged it cannot be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def digest_of_folder(folder: Path) -> str:
    """SHA-256, in hex, of the Python sources of an op's folder."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()
