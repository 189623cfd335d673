"""The cage on CUDA: a process that has a context computes on, and cannot reach the store, the network or the driver."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.forge import landlock, seccomp
from autotuner.forge.build import require_cache
from autotuner.run.cage import CageParts
from autotuner.run.local import LocalExecutor
from tests.helpers import preload
from tests.helpers.adversary import Adversary, adversary, the_store_stays_shut, tried

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not landlock.version() or seccomp.machine() is None, reason="this kernel has no such cage"),
]


def with_a_context() -> Adversary:
    """Made before the cage is entered, as by a judge."""
    import torch

    assert float(torch.ones(4, device="cuda").sum()) == 4
    return adversary()


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    require_cache()
    parts = CageParts.of(DEVICES["cuda"].cage)
    with closing(LocalExecutor(with_a_context, preload.CUDA, overlap=True, jobs_per_process=100, cage=parts)) as made:
        yield made


def test_the_store_cannot_be_read_or_written(executor: LocalExecutor, tmp_path: Path) -> None:
    the_store_stays_shut(executor, tmp_path)


def test_nobody_else_can_be_reached(executor: LocalExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tried(executor, "connects", server.getsockname()[1]) == "EACCES"
    for what in ("traces", "reads_memory", "reads_by_number", "signals"):
        assert tried(executor, what, os.getpid()) in ("EPERM", "EACCES"), what


def test_the_device_computes_on(executor: LocalExecutor) -> None:
    assert tried(executor, "multiplies_on_the_device") == "512.0"
