"""A folder for programs without Python and torch: a header, one C++ file with the dispatch, the variants' objects."""

from __future__ import annotations

import json
import platform
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from autotuner.devices.kind import Packaging
from autotuner.forge.build_inputs import abi_dir
from autotuner.forge.linkable import joined
from autotuner.ops import OPS
from autotuner.ops.op import OpPackage
from autotuner.serve.folder import MOST_VARIANTS, Source, fresh, linked, name_of, packaged
from autotuner.serve.table import digest_of_table
from autotuner.serve.table_source import table_lines
from autotuner.store.records import StudyRecord
from autotuner.values.errors import InputError
from autotuner.values.table import Table
from autotuner.values.versions import version_of

SHARED = ("dispatch.h", "device_model.h")
"""Headers of the ABI that the C file has a copy of, beside the op's."""
SYSTEM = ("atomic", "cmath", "mutex", "stddef.h", "stdint.h")
"""Headers that the body needs beside those of the inlined ones."""
INCLUDE = re.compile(r'^#include ([<"])([^">]+)[">].*\n', re.MULTILINE)


def write_c(table: Table | None, study: StudyRecord, target: Path) -> str:
    """Writes the folder; how it is used, in a line. Raises as `write_package` does."""
    if table is None:
        raise InputError("the C file serves what its table says: run `autotuner finals`, or take --estimates")
    return write_c_folder(table, Source.of(study), target)


def write_c_folder(table: Table, source: Source, target: Path) -> str:
    """The same for a table and where its variants are built from."""
    package, kind = packaged(table)
    name, folder = f"autotuner_{name_of(target)}", OPS[table.op].abi()
    header, body = ((folder / each).read_text().replace("@NAME@", name) for each in package.function)
    with fresh(target) as private:
        scratch = private / "scratch"
        scratch.mkdir()
        joined(source.toolchain, linked(table, source, name, scratch), private / f"{name}_variants.o")
        shutil.rmtree(scratch)
        (private / f"{name}.h").write_text(header)
        (private / f"{name}.cpp").write_text("\n".join([*_lines(table, name, package, kind), body]))
        (private / "export.json").write_text(json.dumps(_said(table, kind), indent=1) + "\n")
    return f"link with {name}.cpp and {name}_variants.o"


def _lines(table: Table, name: str, package: OpPackage, kind: Packaging) -> Iterator[str]:
    """All of the C++ file before what it does: the headers of the ABI, and the table."""
    yield f"// Written by autotuner export --format c; {name}.h says how it is used."
    headers, system = inlined([*SHARED, *package.headers], [abi_dir(), OPS[table.op].abi()])
    yield from (f"#include <{each}>" for each in sorted({*system, *SYSTEM}))
    yield f'#include "{name}.h"\n'
    yield headers
    yield from table_lines(table, name)
    facts = table.proven_on
    yield f"#define AT_MAX_VARIANTS {MOST_VARIANTS}"
    yield f"#define ON_CUDA {int(kind.accelerator)}"
    yield from (f"#define {fact} {int(facts.get(fact, 0))}" for fact in ("SM", "MULTIPROCESSORS"))
    features = [json.dumps(f" {each} ") for each in kind.instructions()]
    yield f"static const char *const features[] = {{{', '.join(features) or 'nullptr'}}};"
    yield f"#define FEATURES {len(features)}"


def inlined(names: list[str], folders: list[Path]) -> tuple[str, list[str]]:
    """The text of headers of ours with those that they include, each once, and the system's headers that they need."""
    done: dict[str, str] = {}
    system: list[str] = []

    def add(name: str) -> None:
        if name in done:
            return
        done[name] = ""  # it is on its way
        text = next(folder / name for folder in folders if (folder / name).is_file()).read_text()
        for kind, included in INCLUDE.findall(text):
            if kind == "<":
                system.append(included)
            else:
                add(included)
        done[name] = done.pop(name) or INCLUDE.sub("", text)

    for name in names:
        add(name)
    return "\n".join(done.values()), system


def _said(table: Table, kind: Packaging) -> dict[str, object]:
    return {
        "generator": f"autotuner {version_of('autotuner')}",
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.machine()}-{platform.system().lower()}",
        "instructions": kind.instructions(),
        "estimates": table.estimates,
        "table": table.model_dump(mode="json"),
        "table_digest": digest_of_table(table),
    }
