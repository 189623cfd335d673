"""autotuner finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it."""

from autotuner.values.versions import version_of

__version__ = version_of("autotuner")
