"""What a block may use on each NVIDIA architecture, without a device to ask.

Source: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications. Multiprocessors are those
of A100, A40, L4 and H100 SXM, from NVIDIA's papers on these architectures.
"""

from autotuner.values import codes
from autotuner.values.errors import InputError
from autotuner.values.model import Model
from autotuner.values.variant import Value
from autotuner.values.verdict import Fault, Verdict

THREADS = 1024
REGISTERS = 65536
REGISTER_UNIT = 256
"""Registers in the unit in which a warp is given them."""


class Architecture(Model):
    """One compute capability: sm_80 is 80."""

    sm: int
    shared_limit: int
    """Bytes of shared memory, static and dynamic, that a block may have."""
    shared_sm: int
    """Bytes of shared memory of one multiprocessor."""
    multiprocessors: int
    """As many as the usual device has; a device that is there is asked."""
    cluster: int = 1
    """Blocks of a thread-block cluster, at most."""

    @property
    def name(self) -> str:
        """As compilers spell it."""
        return f"sm_{self.sm}"

    def facts(self) -> dict[str, Value | bool]:
        """What the constraints of a CUDA space may say about the architecture."""
        return {
            "SM": self.sm,
            "SHARED_LIMIT": self.shared_limit,
            "SHARED_SM": self.shared_sm,
            "REGISTERS_SM": REGISTERS,
            "MULTIPROCESSORS": self.multiprocessors,
        }

    def refuse(self, resources: dict[str, int]) -> Fault | None:
        """Why a kernel of these resources (threads, registers, shared_bytes, cluster) cannot be launched here."""
        warps = -(-resources["threads"] // 32)
        per_warp = -(-resources["registers"] * 32 // REGISTER_UNIT) * REGISTER_UNIT
        found = (
            ("threads a block", resources["threads"], THREADS),
            ("registers a block", warps * per_warp, REGISTERS),
            ("bytes of shared memory a block", resources["shared_bytes"], self.shared_limit),
            ("blocks a cluster", resources["cluster"], self.cluster),
        )
        for what, wanted, most in found:
            if wanted > most:
                detail = f"{wanted} {what}; {self.name} has at most {most}"
                return Fault(verdict=Verdict.OVER_LIMITS, code=codes.LIMITS, detail=detail)
        return None


_KIB = 1024
ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture(sm=80, shared_limit=163 * _KIB, shared_sm=164 * _KIB, multiprocessors=108),
        Architecture(sm=86, shared_limit=99 * _KIB, shared_sm=100 * _KIB, multiprocessors=84),
        Architecture(sm=89, shared_limit=99 * _KIB, shared_sm=100 * _KIB, multiprocessors=58),
        Architecture(sm=90, shared_limit=227 * _KIB, shared_sm=228 * _KIB, multiprocessors=132, cluster=16),
    )
}


def architecture(name: str) -> Architecture:
    """The architecture of that name. Raises InputError with the names there are."""
    if name not in ARCHITECTURES:
        raise InputError(f"no architecture {name!r}: expected one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
