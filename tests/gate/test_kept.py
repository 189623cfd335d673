"""Truths in files: what is read is what was written, and a file that is not whole is not believed."""

import math
from pathlib import Path

import pytest
import torch

from autotuner.gate import kept


def test_numbers_and_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    strided = torch.randn(3, 4, 5).transpose(0, 2)
    expanded = torch.randn(1, 6, dtype=torch.float64).expand(3, -1)
    part = torch.arange(20, dtype=torch.int32)[3:9:2]
    kept.write(tmp_path / "a", ((strided, expanded), (part, 0.1, math.inf), torch.empty(0)))
    (one, two), (three, *numbers), nothing = kept.read(tmp_path / "a")
    for found, meant in zip((one, two, three, nothing), (strided, expanded, part, torch.empty(0)), strict=True):
        assert (found.dtype, found.stride()) == (meant.dtype, meant.stride())
        assert torch.equal(found, meant)
    assert numbers == [0.1, math.inf]


def test_what_shares_memory_shares_it_still_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    whole = torch.zeros(4, 4)
    kept.write(tmp_path / "a", (whole, whole[1]))
    first, row = kept.read(tmp_path / "a")
    first.fill_(7.0)
    assert row.tolist() == [7.0] * 4
    assert not kept.read(tmp_path / "a")[0].any()


@pytest.mark.parametrize("left", [0, 5, 40, 200])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, left: int) -> None:
    kept.write(tmp_path / "a", (torch.ones(100), 1.0))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:left])
    with pytest.raises((ValueError, KeyError, TypeError)):
        kept.read(tmp_path / "a")
