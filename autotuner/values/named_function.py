"""A function of Python by its name: what a study keeps of a baseline that is none of the op's own."""

from __future__ import annotations

from pydantic import Field

from autotuner.values.model import Model


class NamedFunction(Model):
    """Where a function is found, and which one it was."""

    name: str = Field(description="what tables call it: module:function, or the name of a library")
    python: str = Field(description="module:function")
    path: str = Field(description="the folder in which the module is found where it is not installed")
    digest: str = Field(
        description="of the module's file and its package's version: with others it is another baseline"
    )
