"""A variant that is a kernel of Triton: how kernel.toml says that it is called, and the host side that calls it.

What an argument is given stands in kernel.toml: the name of a tensor (`q`), a stride (`q.stride(2)`), a scalar of the
op (`scale`), or an expression over the sizes of the call (`SEQ_Q`). A `tl.constexpr` is given an expression over the
parameters and the compile-time part of the problem; one that has the name of such a value need not be mentioned.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from autotuner.forge.languages.language import Language, VariantToBuild, checked
from autotuner.ops import op_of
from autotuner.ops.op import Input, Output, shape_of
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.values.errors import KernelError
from autotuner.values.validation import suggestion

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs
    from autotuner.forge.family import Family, Implementation
    from autotuner.values.variant import Value

OPTIONS = ("num_warps", "num_stages", "num_ctas")
"""What a kernel is compiled with beside its own constants, as Triton calls them."""
WORD = re.compile(r"([a-z_][a-z0-9_]*)(?:\.stride\((\d)\))?")
"""A tensor, one of its strides, or a scalar."""
POINTERS = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16", "int32": "*i32"}
ITEMS = {"float32": 4, "bfloat16": 2, "float16": 2, "int32": 4}
VECTOR = 16
"""Bytes: tensors are aligned so, and strides that the caller chooses are multiples."""
KINDS = {"i32": "int32_t", "i64": "int64_t", "fp32": "float"}
"""Types of C; all others are addresses."""
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Kernel(NamedTuple):
    """A `@triton.jit` function as its source has it."""

    arguments: tuple[str, ...]
    """At run time, in order."""
    constants: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, name: str) -> Kernel:
        """Raises KernelError where the file has no such kernel."""
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            raise KernelError(f"{path}: not Python: {error}") from None
        jitted = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list}
        if name not in jitted:
            hint = suggestion(name, jitted) or f"; it has {', '.join(jitted) or 'none'}"
            raise KernelError(f"{path} has no @triton.jit function {name}{hint}")
        every = jitted[name].args
        given = [*every.posonlyargs, *every.args, *every.kwonlyargs]
        constants = [each.arg for each in given if each.annotation and "constexpr" in ast.unparse(each.annotation)]
        return cls(tuple(each.arg for each in given if each.arg not in constants), tuple(constants))


class Triton(Language):
    """A source NAME.py with a `@triton.jit` kernel, and a table `triton` that says how it is called."""

    name = "triton"

    def takes(self, implementation: Implementation) -> bool:
        return implementation.source.endswith(".py") or implementation.triton is not None

    def check(self, where: str, family: Family, implementation: Implementation) -> None:
        call, op = implementation.triton, family.op
        if call is None or op is None or not implementation.source.endswith(".py"):
            raise KernelError(f"{where}.triton: a kernel of Triton is a source NAME.py, and has this table")
        where, kernel = f"{where}.triton", Kernel.read(self.source(family, implementation), call.kernel)
        fixed = {*implementation.parameters, *family.facts, "IMPL"}
        sizes = fixed | {name.upper() for name in op.problem.DIMS}
        _check_names(f"{where}.arguments", call.kernel, kernel, call.arguments, fixed)
        if not 1 <= len(call.grid) <= 3:
            raise KernelError(f"{where}.grid: found {len(call.grid)} sizes, expected 1 to 3")
        for index, text in enumerate(call.grid):
            found = checked(f"{where}.grid[{index}]", text, sizes)
            if not found.names and int(found.evaluate({})) < 1:
                raise KernelError(f"{where}.grid[{index}]: found {text}, expected 1 or more")
        for name, text in call.arguments.items():
            if name not in kernel.arguments:
                checked(f"{where}.arguments.{name}", text, fixed)
            elif not WORD.fullmatch(text):
                checked(f"{where}.arguments.{name}", text, sizes)

    def words(self, implementation: Implementation) -> str:
        assert implementation.triton is not None
        return " ".join((*implementation.triton.grid, *implementation.triton.arguments.values()))

    def call(self, wanted: VariantToBuild) -> dict[str, Any]:
        """What kernels/abi/triton_compile.py is told, and the host side."""
        call = wanted.implementation.triton
        assert call is not None
        kernel = Kernel.read(self.source(wanted.family, wanted.implementation), call.kernel)
        given = {name: _argument(name, call.arguments[name], wanted) for name in kernel.arguments}
        values = {**wanted.variant.point, **wanted.compiled}

        def fixed(name: str) -> Value:
            found = Expression.parse(call.arguments.get(name, name)).evaluate(values)
            return found if isinstance(found, str) else int(found)

        return {
            "kernel": call.kernel,
            "types": {name: each.kind for name, each in given.items()},
            "divisible": {name: each.divisor for name, each in given.items() if each.divisor > 1},
            "constants": {name: fixed(name) for name in kernel.constants},
            "options": {name: fixed(name) for name in OPTIONS if name in call.arguments},
            "host": _host(wanted, [*given.values()]),
        }

    def texts(self, inputs: BuildInputs) -> dict[str, str]:
        told = {"digest": inputs.digest, "signature": inputs.signature, "macros": inputs.macros}
        return {inputs.toolchain.unit: json.dumps({**inputs.call, **told}), "host.cpp": inputs.call["host"]}


def _check_names(where: str, name: str, kernel: Kernel, given: Mapping[str, str], fixed: set[str]) -> None:
    """Raises KernelError for an argument that the kernel has not, or that is given nothing."""
    every = (*kernel.arguments, *kernel.constants)
    for argument in given:
        if argument not in (*every, *OPTIONS):
            hint = suggestion(argument, [*every, *OPTIONS]) or f"; it has {', '.join(every)}"
            raise KernelError(f"{where}.{argument}: {name} has no such argument{hint}")
    for argument in every:
        if argument not in given and not (argument in kernel.constants and argument in fixed):
            other = ", nor a parameter of that name" if argument in kernel.constants else ""
            raise KernelError(f"{where}: {name} takes {argument}, and no key here says what it is given{other}")


class KernelArgument(NamedTuple):
    """What an argument is given."""

    kind: str
    """Its type, as Triton writes it."""
    text: str
    """In C, of the call."""
    divisor: int = 1
    """A number that surely divides it."""


def _argument(name: str, text: str, wanted: VariantToBuild) -> KernelArgument:
    """Raises KernelError for what the problem has not."""
    problem, op = wanted.problem, op_of(wanted.problem)
    tables: dict[str, Sequence[Input | Output]] = {"in": op.inputs(problem), "out": op.outputs(problem)}
    word = WORD.fullmatch(text)
    if word is None:
        return KernelArgument("i32", f"(int32_t){_of_call(text, wanted)}")
    for table, tensors in tables.items():
        for place, tensor in enumerate(tensors):
            if tensor.name.lower() == word[1] and int(word[2] or 0) < len(tensor.shape):
                whole = VECTOR // ITEMS[tensor.dtype]
                if word[2] is None:
                    aligned = ITEMS[tensor.dtype] if "int" in tensor.dtype else VECTOR
                    return KernelArgument(POINTERS[tensor.dtype], f"(uint64_t)call->{table}[{place}]", aligned)
                sizes, fixed = shape_of(tensor, problem), tensor.shape[-1] not in problem.DIMS
                apart = tensor.strided or (fixed and sizes[-1] % whole == 0)
                return KernelArgument("i64", f"call->{table}_stride[{place}][{word[2]}]", whole if apart else 1)
    if word[2] is None and word[1] in problem.SCALARS:
        return KernelArgument("fp32", f"(float)call->scalar[{problem.SCALARS.index(word[1])}]")
    known = ", ".join([*(each.name.lower() for table in tables.values() for each in table), *problem.SCALARS])
    where = f"{wanted.family.folder}/kernel.toml: [{wanted.variant.backend}.{wanted.variant.impl}]"
    raise KernelError(f"{where}: triton.arguments.{name}: this problem has no {text}; it has {known}")


def _of_call(text: str, wanted: VariantToBuild) -> str:
    """An expression over sizes, parameters and the compile-time part of the problem, in C."""
    sizes = {name.upper(): f"call->dim[{index}]" for index, name in enumerate(wanted.problem.DIMS)}
    values = {**wanted.variant.point, **wanted.compiled}

    def name(word: str) -> str:
        if word in sizes:
            return sizes[word]
        return _as_c(ast.Constant(values[word]), name)

    try:
        return _as_c(ast.parse(text, mode="eval").body, name)
    except ExpressionError as error:
        raise KernelError(f"{wanted.family.folder}/kernel.toml: {error.reason}") from None


def _host(wanted: VariantToBuild, given: Sequence[KernelArgument]) -> str:
    """The host side, C++."""
    call, dims = wanted.implementation.triton, wanted.problem.DIMS
    assert call is not None
    values = (f"const {KINDS.get(each.kind, 'uint64_t')} a{index} = {each.text};" for index, each in enumerate(given))
    served = [_of_call(wanted.implementation.domain, wanted)]
    served += [
        f"call->dim[{dims.index(name)}] == {wanted.compiled[name.upper()]}"
        for name in wanted.problem.LENGTHS
        if name.upper() in wanted.compiled
    ]
    grid = [*(f"(int64_t){_of_call(text, wanted)}" for text in call.grid), "1", "1"][:3]
    macros = {
        "AT_SERVED": " && ".join(served),
        "AT_GRID": ", ".join(grid),
        "AT_VALUES": " ".join(values),
        "AT_ADDRESSES": "".join(f"(void *)&a{index}, " for index in range(len(given))),
    }
    return "\n".join([*(f"#define {name} {text}" for name, text in macros.items()), '#include "triton_host.h"', ""])


def _as_c(node: ast.expr, name: Callable[[str], str]) -> str:
    """The expression in C, of numbers that are not negative. `name`: what stands for a name."""
    match node:
        case ast.Name(id=word):
            return name(word)
        case ast.Constant(value=value) if isinstance(value, int):
            return str(int(value))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return f"({_as_c(left, name)} {ARITHMETIC[type(op)]} {_as_c(right, name)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            return f"({_as_c(left, name)} {COMPARISONS[type(op)]} {_as_c(right, name)})"
        case ast.BoolOp(op=op, values=values):
            sign = " && " if isinstance(op, ast.And) else " || "
            return f"({sign.join(_as_c(each, name) for each in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"(!{_as_c(operand, name)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({_as_c(test, name)} ? {_as_c(body, name)} : {_as_c(orelse, name)})"
        case ast.Call(func=ast.Name(id=word), args=[first, *rest]):
            found = _as_c(first, name)
            for each in rest:
                found = f"{word}({found}, {_as_c(each, name)})"
            return found
    raise ExpressionError(f"{ast.unparse(node)} cannot be computed at a call", ast.unparse(node))
