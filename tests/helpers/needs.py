"""Marks of tests that need what is not on every machine."""

import pytest

from autotuner.values import config
from tests.emulator.emulator import cuda_include

nvcc = pytest.mark.skipif(config.nvcc() is None, reason="needs nvcc")
emulator = pytest.mark.skipif(
    cuda_include() is None or config.cxx() is None, reason="needs the CUDA toolkit's headers and a C++ compiler"
)
