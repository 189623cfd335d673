"""What a look at the sources says of a space before anything is built: parameters that none of them reads, values that
nothing tells apart, and conditions on what nobody defines.

It reads words, as the preprocessor sees them. What only a build can show is what `doctor` looks for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from autotuner.forge.build_inputs import abi_dir, files_of, host_source
from autotuner.forge.family import Family
from autotuner.forge.languages import language_of
from autotuner.forge.toolchain import Toolchain
from autotuner.forge.unit import string_macro
from autotuner.values.variant import Value

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b((?:\\\n|[^\n])*)", re.MULTILINE)
FILE = re.compile(r'"[^"]*"|<[\w./+-]+>')
DEFINED = re.compile(r"#[ \t]*define[ \t]+(\w+)")
THEIRS = r"_\w+|AT_\w+|defined|and|or|not|true|false|[A-Z]+_(MAX|MIN)|NDEBUG"
"""Names of the compiler, the system and the ABI."""


def unread(
    family: Family, device: str, impl: str, values: Mapping[str, Sequence[Value]], toolchain: Toolchain
) -> list[str]:
    """Lines for a person about one implementation; `values`: of the space, by parameter."""
    implementation = family.implementation(device, impl)
    host = host_source(family, toolchain, implementation)
    named = language_of(implementation).words(implementation)
    if named is None:  # its function takes them by name: that was looked at
        return []
    sources = [family.source(implementation), *([host] if host else [])]
    files = files_of(sources, (abi_dir(), *family.include_dirs))
    texts = {path: COMMENT.sub(" ", text.decode(errors="replace")) for path, text in files.items()}
    words = {word for text in (named, *texts.values()) for word in WORD.findall(text)}
    told = [line for name, each in values.items() if name != "IMPL" for line in _unread(name, each, words)]
    defined = {name for text in texts.values() for name in DEFINED.findall(text)}
    known = re.compile("|".join([THEIRS, *family.facts, *family.lengths, *_parameters(family)]))
    for path, text in texts.items():
        if path.is_relative_to(family.folder.resolve()):
            asked = {word for line in CONDITION.findall(text) for word in WORD.findall(FILE.sub("", line))} - defined
            missing = sorted(word for word in asked if not known.fullmatch(word))
            told += [f"{path.name} asks for {word} in an #if, and nothing defines it" for word in missing]
    return [f"{family.document.family}, {impl}: {line}" for line in told]


def _parameters(family: Family) -> Iterator[str]:
    """Expressions for the macros of all: sources may know more values than are searched."""
    for table in family.document.devices.values():
        for name in {name for each in table.values() for name in each.parameters}:
            yield rf"{name}(_\w+)?"


def _unread(name: str, values: Sequence[Value], words: set[str]) -> Iterator[str]:
    """A single value that is not read may be what is done where no other is."""
    macros = [string_macro(name, value) for value in values if isinstance(value, str)]
    silent = [macro for macro in macros if macro not in words]
    others = [word for word in words if word.startswith(f"{name}_") and word not in macros]
    if (not macros and name not in words) or (len(macros) > 1 and silent == macros):
        yield f"no source reads {name}"
    elif len(silent) > 1:
        yield f"no source tells {' and '.join(silent)} apart"
    elif silent and (near := get_close_matches(silent[0], others, 1, 0.8)):
        yield f"no source reads {silent[0]}, but one reads {near[0]}"
