"""Build inputs: all that goes into one artifact, and its identity."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autotuner.forge.family import ABI_VERSION, Family, Implementation
from autotuner.forge.languages import language_of
from autotuner.forge.languages.language import Language, VariantToBuild
from autotuner.forge.toolchain import Toolchain
from autotuner.ops import op_of
from autotuner.ops.op import shape_of
from autotuner.values import config
from autotuner.values.errors import KernelError
from autotuner.values.problem import Problem
from autotuner.values.validation import show
from autotuner.values.variant import Value, Variant, digest_of

NAMED = re.compile(rb'["<]([\w./+-]{1,200})\\?[">]')
"""What may be the name of a file in a source: in an #include, an #embed, a macro that stands for one, an .incbin."""
SUFFIXES = (".h", ".hpp", ".cuh", ".inl", ".c", ".cc", ".cpp", ".cu")
"""Of files that may lie outside of the folders of the family and the ABI, as headers that several families share."""
INSTALLED = Path("/usr/local/include")
"""Where headers of libraries are, which change while the compiler does not."""


def abi_dir() -> Path:
    """The folder of the ABI's headers and the binding."""
    return config.kernels_dir() / "abi"


@dataclass(frozen=True)
class BuildInputs:
    """All that goes into one artifact, and its identity."""

    variant: Variant
    compiled: Mapping[str, Value]
    """The macros that the problem gives: its compile-time part, and the lengths that the variant fixes."""
    toolchain: Toolchain
    flags: tuple[str, ...]
    source: Path
    host: Path | None
    """The host side of a variant that needs one."""
    include_dirs: tuple[Path, ...]
    signature: str
    """The device, and a line for each tensor that the variant reads or writes; empty for what computes no op."""
    sources: dict[str, str]
    """SHA-256 of each file that it is compiled from, by folder and name."""
    files: tuple[Path, ...]
    """These files: no others of the user's can be read by its compilers."""
    language: Language
    call: Any
    """What kernel.toml says of the call, which no source holds: plain values."""
    digest: str

    @classmethod
    def of(cls, family: Family, variant: Variant, problem: Problem | None, toolchain: Toolchain) -> Self:
        """`problem` is None for what computes no op. Raises KernelError when the family does not take the variant or
        the problem."""
        family.admit(variant, problem)
        implementation = family.implementation(variant.backend, variant.impl)
        language = language_of(implementation)
        toolchain = toolchain.of(language.name)
        source, host = family.source(implementation), host_source(family, toolchain, implementation)
        include_dirs = (abi_dir(), *family.include_dirs)
        _require_allowed(family, variant, implementation.flags, toolchain)
        flags = (*_common_flags(family, implementation, toolchain), *implementation.flags)
        compiled: dict[str, Value] = dict(problem.compiled) if problem is not None else {}
        if problem is not None and implementation.fixes(variant):
            compiled |= problem.lengths
        signature = signature_of(problem, toolchain.torch_device) if problem is not None else ""
        files = files_of([source, *_ours(toolchain), *([host] if host else [])], include_dirs)
        files |= language.files(family, implementation)
        sources = source_digests(files)
        call = None
        if problem is not None:
            call = language.call(
                VariantToBuild(family, implementation, variant, problem, compiled, toolchain.torch_device)
            )
        identity = {
            "variant": variant.model_dump(mode="json"),
            "op": None if problem is None else problem.op,
            "compiled": compiled,
            "signature": signature,
            "toolchain": toolchain.model_dump(mode="json"),
            "flags": flags,
            "sources": sources,
            **({} if call is None else {"call": call}),
            "abi": ABI_VERSION,
            "form": 4,  # of a build's folder, and of what its program hash covers
        }
        made_from = (source, host, include_dirs, signature, sources, tuple(files), language, call)
        return cls(variant, compiled, toolchain, flags, *made_from, digest_of(identity))

    @property
    def name(self) -> str:
        """The extension's module name: unique to the artifact."""
        return f"{self.variant.family}_{self.variant.impl}_{self.digest[:16]}"

    @property
    def library(self) -> str:
        """The file name of the extension."""
        return f"{self.name}.abi3.so"

    @property
    def words(self) -> tuple[str, ...]:
        """The variant's flags and the folders of its headers, for a compiler."""
        return (*self.flags, *(f"-I{folder}" for folder in self.include_dirs))

    @property
    def macros(self) -> dict[str, str]:
        """Name and value, as text, of every macro that the binary must report."""
        return {name: str(value) for name, value in {**self.variant.parameters, **self.compiled}.items()}


def signature_of(problem: Problem, torch_device: str) -> str:
    """What the binding asks of the tensors it is given (kernels/abi/binding.cpp): of each the direction, the name, the
    element type, whether strides are the caller's, and the sizes, `d` and a number for one of the problem's."""
    op, lines = op_of(problem), [f"device\t{torch_device}"]
    for direction, tensors in (("in", op.inputs(problem)), ("out", op.outputs(problem))):
        for each in tensors:
            pairs = zip(each.shape, shape_of(each, problem), strict=True)
            sizes = (f"d{problem.DIMS.index(name)}" if name in problem.DIMS else str(size) for name, size in pairs)
            lines.append("\t".join((direction, each.name, each.dtype, str(int(each.strided)), " ".join(sizes))))
    return "".join(f"{line}\n" for line in lines)


def binding() -> Path:
    """The Python binding's source."""
    return abi_dir() / "binding.cpp"


def _ours(toolchain: Toolchain) -> list[Path]:
    """The ABI's own sources, which are in every build."""
    return [binding(), *(abi_dir() / name for name in toolchain.sources)]


def host_source(family: Family, toolchain: Toolchain, implementation: Implementation) -> Path | None:
    """The host side of an implementation: its own, or the family's; None where the toolchain wants none.

    Raises KernelError where there is none but one is needed.
    """
    wanted = toolchain.needs_host and language_of(implementation).has_host
    return family.host(implementation) if wanted else None


def _common_flags(family: Family, implementation: Implementation, toolchain: Toolchain) -> tuple[str, ...]:
    """The flags before the implementation's own. Raises KernelError when it is for another architecture."""
    if implementation.arch is None:
        return toolchain.flags
    flags = toolchain.flags_for(implementation.arch)
    if flags is None:
        source, here = family.source(implementation), toolchain.architecture
        raise KernelError(f"{source} is for {implementation.arch}; it does not run on {here}")
    return flags


def _require_allowed(family: Family, variant: Variant, flags: tuple[str, ...], toolchain: Toolchain) -> None:
    """Raises KernelError for a flag that might do anything but change the program."""
    for flag in flags:
        if not re.fullmatch(toolchain.allowed, flag):
            where = f"{family.folder}/kernel.toml: {variant.backend}.{variant.impl}.flags"
            raise KernelError(
                f"{where}: {show(flag)} is none of the flags that change the program alone; remove it, or write what it"
                " does into the source (docs/reference/kernel-toml.md#flags)"
            )


def built_from(family: Family, device: str, toolchain: Toolchain) -> str:
    """A digest of what every artifact of a family is made from: its sources, flags and policy, the ABI, the compiler,
    the machine. Limits and expectations are no part of it: a space's digest has what they leave."""
    table = family.table(device)
    sources, functions = _ours(toolchain), dict[Path, bytes]()
    for implementation in table.values():
        host = host_source(family, toolchain, implementation)
        sources += [family.source(implementation), *([host] if host else [])]
        functions |= language_of(implementation).files(family, implementation)
    digests = source_digests(files_of(sources, (abi_dir(), *family.include_dirs)) | functions)
    said = {name: implementation.model_dump(mode="json") for name, implementation in sorted(table.items())}
    policy = family.document.gate.model_dump(mode="json")
    return digest_of([sorted(digests.items()), said, policy, toolchain.model_dump(mode="json"), ABI_VERSION])


def files_of(sources: Iterable[Path], include_dirs: tuple[Path, ...]) -> dict[Path, bytes]:
    """The sources and every file of ours that they name, however deep, with their contents; the compiler's headers are
    not among them."""
    found: dict[Path, bytes] = {}
    folders = [folder.resolve() for folder in (*include_dirs, INSTALLED)]
    waiting = [path.resolve() for path in sources]
    while waiting:
        path = waiting.pop()
        if path in found or not (path.suffix in SUFFIXES or any(path.is_relative_to(folder) for folder in folders)):
            continue
        found[path] = path.read_bytes()
        for name in dict.fromkeys(NAMED.findall(found[path])):
            places = (folder / os.fsdecode(name) for folder in (path.parent, *folders))
            waiting.append(next(filter(Path.is_file, places), path).resolve())
    return found


def source_digests(files: Mapping[Path, bytes]) -> dict[str, str]:
    """SHA-256 of each file, by folder and name; the compiler's headers belong to its version."""
    digests: dict[str, str] = {}
    for path, text in files.items():
        key = f"{path.parent.name}/{path.name}"
        while key in digests:  # another file of that name, in another folder of that name
            key += "+"
        digests[key] = hashlib.sha256(text).hexdigest()
    return digests
