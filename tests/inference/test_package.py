"""A package's folder, loaded by autotuner.load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.export.folder import Source
from autotuner.export.package import write_folder
from autotuner.values.errors import InputError
from tests.helpers.tables import FOLDER, built, problem, served, table


def test_a_package_is_loaded_from_its_folder_and_a_damaged_one_refused(tmp_path: Path) -> None:
    artifact = built(problem(32))
    of = table([served(artifact)], [(problem(32), artifact.digest)])
    folder = tmp_path / "folder"
    write_folder(of, Source(CpuToolchain.discover(), FOLDER), folder)
    ours = autotuner.load(folder)
    q, k, v = inputs = tuple(torch.randn(1, 2, 32, 64) for _ in range(3))
    torch.testing.assert_close(ours(q, k, v), scaled_dot_product_attention(q, k, v), atol=1e-5, rtol=1e-4)
    assert ours.explain(*inputs).variant == str(artifact.variant)
    assert ours.served == 1.0
    ours.reset_counters()
    (metadata,) = folder.glob("build/*/metadata.json")
    said = metadata.read_bytes()
    metadata.write_bytes(said + b" ")
    with pytest.raises(InputError, match="exported again since this process has loaded it; restart Python"):
        autotuner.load(folder)
    metadata.write_bytes(said)
    (library,) = folder.glob("build/*/*.so")
    library.rename(library.with_suffix(".gone"))  # another file at its place: the loaded one is in use
    library.write_bytes(b"damaged")
    other = library.parent.rename(library.parent.with_name("torch-moved"))
    with pytest.raises(InputError, match=r"damaged: _autotuner_folder.so is not the file") as caught:
        autotuner.load(other)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no package; write one with"):
        autotuner.load(tmp_path)
