"""What the codes of the faults assert that a build may end with, and what usually breaks it."""

from __future__ import annotations

from autotuner.values.verdict import Meaning

MEANINGS = {
    "build.failed": Meaning("the compiler accepts the variant"),
    "build.timeout": Meaning("the compiler finishes within its deadline"),
}
