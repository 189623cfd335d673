"""Truths in files: their tensors lie there as in memory, and are mapped when they are read.

    length of the head (8 bytes) | head, JSON | memory | memory | ...

The gate reads some fifty truths for each variant. torch.load takes longer for one than a small variant takes to compute
its output. Each memory begins at a multiple of ALIGNMENT; the head says where, and how each tensor lies in one.
"""

import json
import mmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64
HEAD = 8
"""Bytes of the length of the head."""


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def write(path: Path, values: Any) -> None:
    """Writes numbers and tensors of the CPU, in tuples and lists as deep as they like. Raises OSError."""
    memories: dict[int, tuple[int, Tensor]] = {}
    used = 0

    def described(value: Any) -> Any:
        nonlocal used
        if isinstance(value, tuple | list):
            return [described(each) for each in value]
        if not isinstance(value, Tensor):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in memories:
            memories[storage.data_ptr()] = used, torch.empty(0, dtype=torch.uint8).set_(storage)
            used += _aligned(storage.nbytes())
        start = memories[storage.data_ptr()][0] // value.element_size() + value.storage_offset()
        return {"dtype": str(value.dtype)[6:], "place": [start, list(value.shape), list(value.stride())]}

    # Spaces at the end of the head: the memories begin at a multiple of ALIGNMENT, and so does all that is in them.
    head = json.dumps({"values": described(values), "bytes": used}).encode()
    head += b" " * (_aligned(HEAD + len(head)) - HEAD - len(head))
    with path.open("wb") as file:
        file.write(len(head).to_bytes(HEAD, "little") + head)
        for start, memory in memories.values():
            file.seek(HEAD + len(head) + start)
            file.write(memory.numpy().data)
        file.truncate(HEAD + len(head) + used)


def read(path: Path) -> Any:
    """The same, in lists; what is written into the tensors stays in this process. Raises OSError, ValueError, KeyError
    or TypeError where there is no such file or it is not whole."""
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = HEAD + int.from_bytes(whole[:HEAD], "little")
    head = json.loads(whole[HEAD:begin])
    if len(whole) != begin + head["bytes"]:
        raise ValueError(f"{path} is not whole")
    none = torch.empty(0, dtype=torch.uint8)
    return _found(head["values"], torch.frombuffer(whole, dtype=torch.uint8, offset=begin) if head["bytes"] else none)


def _found(value: Any, memory: Tensor) -> Any:
    if isinstance(value, list):
        return [_found(each, memory) for each in value]
    if isinstance(value, dict):
        start, shape, stride = value["place"]
        return memory.view(getattr(torch, value["dtype"])).as_strided(shape, stride, start)
    return value
