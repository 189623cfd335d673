"""Compiles a kernel of Triton ahead of time: run in a build's folder, in the compilers' cage, as a program of its own.

It reads unit.json (forge/languages/triton.py), and writes variant.cubin: Triton's own PTX, with the constants beside it
by which every CUDA variant says what it is and how it is launched, through Triton's own ptxas.
"""

import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)\s*((?:\.\w+ [\d, ]+\s*)*)\{", re.DOTALL)
ABI_VERSION = 2
SCRATCH = 2
"""Arguments that Triton adds, of memory that it may ask for."""


def main(unit: dict, capability: int, path: str, sites: list[str]) -> None:
    """`path`: of the source; `sites`: the folders of what is installed."""
    here = Path.cwd()
    sys.path += sites
    os.environ |= {"TRITON_CACHE_DIR": str(here / "triton"), "HOME": str(here), "TRITON_DISABLE_LINE_INFO": "1"}
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", capability, 32)
    type(make_backend(target)).make_cubin = lambda *_: b""  # made below, with the constants in it
    spec = importlib.util.spec_from_file_location("kernel_of_triton", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, unit["kernel"])
    places = {name: (kernel.arg_names.index(name),) for name in kernel.arg_names}
    source = ASTSource(
        fn=kernel,
        signature={name: unit["types"].get(name, "constexpr") for name in kernel.arg_names},
        constexprs={places[name]: value for name, value in unit["constants"].items()},
        attrs={places[name]: [["tt.divisibility", by]] for name, by in unit["divisible"].items()},
    )
    try:
        made = triton.compile(source, target=target, options=unit["options"])
    except Exception as failed:  # whatever Triton raises: told from the innermost on, with the line of the source
        chain = [failed]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        sys.exit("\n".join([f"error: {chain[-1]}", *(str(each) for each in chain[-2:-1])]))
    held = unit["macros"] | {name: str(source.constants[places[name]]) for name in unit["constants"]}
    macros = "".join(f"{name}={held[name]}\n" for name in unit["macros"])
    Path("variant.ptx").write_text(with_identity(made.asm["ptx"], made.metadata, unit, macros))
    from triton.backends.nvidia.compiler import get_ptxas  # that which its PTX is written for

    arch = re.search(r"^\.target (\w+)", made.asm["ptx"], re.MULTILINE)[1]
    ptxas = get_ptxas(capability).path
    sys.exit(subprocess.run([ptxas, "-v", f"--gpu-name={arch}", "variant.ptx", "-o", "variant.cubin"]).returncode)


def with_identity(ptx: str, metadata: object, unit: dict, macros: str) -> str:
    """The PTX with the constants of an identity and a geometry, and the kernel by the name of all."""
    name, arguments, directives = ENTRY.search(ptx).groups()
    wanted = len(unit["types"]) + SCRATCH
    if arguments.count(".param") > wanted or metadata.global_scratch_size:
        sys.exit(f"error: {unit['kernel']} asks for memory of Triton's own, as descriptors made on the device do")
    if len(re.findall(r"\.visible \.entry", ptx)) != 1:
        sys.exit(f"error: {unit['kernel']} is more than one kernel")
    threads = int(re.search(r"\.reqntid (\d+)", directives)[1])
    cluster = int(unit["options"].get("num_ctas", 1))
    geometry = struct.pack("<7i16i", ABI_VERSION, 0, threads, 1, cluster, cluster, metadata.shared, *[0] * 16)
    digest = unit["digest"]
    texts = {
        "at_signature": unit["signature"],
        f"at_build_id_{digest[:16]}": digest,
        f"at_macros_{digest[:16]}": macros,
    }
    constants = {each: text.encode() + b"\0" for each, text in texts.items()} | {"variant_geometry": geometry}
    lines = [
        f".visible .global .align 8 .b8 {each}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"
        for each, data in constants.items()
    ]
    ptx = re.sub(
        r"^\.global \.align 1 \.b8 _\$_str\S* = .*;\n", "", ptx, flags=re.MULTILINE
    )  # libdevice's own, not read
    ptx = re.sub(rf"\b{name}(?=\b|_param_)", "variant_kernel", ptx)
    head = re.search(r"^\.address_size \d+\n", ptx, re.MULTILINE).end()
    return ptx[:head] + "".join(lines) + ptx[head:]


if __name__ == "__main__":
    main(json.loads(Path("unit.json").read_text()), int(sys.argv[1]), sys.argv[2], sys.argv[3:])
