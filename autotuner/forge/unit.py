"""The translation unit of a variant in C++ or CUDA, which is compiled once a variant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autotuner.forge.toolchain import IDENTITY
from autotuner.values.variant import Value

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs


def string_macro(prefix: str, value: str) -> str:
    """The macro that stands for a string value: of a parameter P, P_VALUE; of a problem's field, AT_VALUE."""
    return f"{prefix}_{re.sub(r'[^A-Z0-9]', '_', value.upper())}"


def macro_lines(parameters: Mapping[str, int | str]) -> Iterator[str]:
    """The #define of each parameter: integers as they are; a string value v of P becomes P_V, defined to 1."""
    for name, value in parameters.items():
        yield f"#define {name} {value}" if isinstance(value, int) else f"#define {string_macro(name, value)} 1"


def compiled_lines(compiled: Mapping[str, Value]) -> Iterator[str]:
    """The #define of each macro that the problem gives: a string value is one of the constants of the ABI's headers."""
    for name, value in compiled.items():
        yield f"#define {name} {value if isinstance(value, int) else string_macro('AT', value)}"


def literal(text: str) -> str:
    """The text as a string literal of C."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n") + '"'


def _report_lines(inputs: BuildInputs) -> Iterator[str]:
    """The table of macros as the preprocessor holds them after the variant's source, as NAME=VALUE lines."""
    parameters = inputs.variant.parameters
    for name, value in {**parameters, **inputs.compiled}.items():
        if isinstance(value, str):
            own = name in parameters
            held = f"{string_macro(name, value)} == 1" if own else f"{name} == {string_macro('AT', value)}"
            yield f'#if {held}\n"{name}={value}\\n"\n#endif'
        else:
            yield f'"{name}=" AT_TEXT({name}) "\\n"'


def unit_text(inputs: BuildInputs, *first: str) -> str:
    """The translation unit: macros, lines `first`, the variant's source, and what the binary says about itself,
    which no macro of the source changes."""
    lines = [
        *macro_lines(inputs.variant.parameters),
        *compiled_lines(inputs.compiled),
        *first,
        f'#include "{inputs.source.name}"',
        '#include "identity.h"',
        *(f"#undef {name}" for name in (*IDENTITY, "AT_TEXT", "AT_TEXT_")),
        "#define AT_TEXT_(x) #x",
        "#define AT_TEXT(x) AT_TEXT_(x)",
        *inputs.toolchain.identity(inputs.digest, list(_report_lines(inputs)), literal(inputs.signature)),
    ]
    return "\n".join([*lines, ""])
