"""Documents that earlier versions wrote, as today's models read them. The only module that knows old names.

Reports of versions 1 and 2 knew one op, sdpa, and named its dimensions.
"""

from __future__ import annotations

from typing import Any

RENAMED = {
    "head_rel": "slice_rel",
    "head_rel_tol": "slice_rel_tol",
    "flash_ratio": "peer_ratio",
    "heads": "slices",
    "of_heads": "of_slices",
}
CODES = {"G2.sdpa": "G2.baseline"}
"""Codes of checks that have another name today."""

ARTIFACT = ("dtype", "head_dim", "causal", "lengths")
"""Fields of an artifact that said again what its macros say."""

REPORT = ("causal", "streams", "bounded", "fixed_lengths")
"""Fields of a gate report from which followed what was required of it."""

REQUIRED = ("G0.identity", "G1.smoke", "G2.quick", "G3.repeat", "G3.offset", "G3.misaligned", "G5.matrix")
"""Required of every variant in all versions."""

OP = "sdpa"
"""The op of a document that names none."""


def renamed(document: Any) -> Any:
    """Errors and extents of a case, by today's names."""
    if isinstance(document, dict) and RENAMED.keys() & document.keys():
        return {RENAMED.get(name, name): value for name, value in document.items()}
    return document


def code(name: Any) -> Any:
    """The code of a check, as it is today."""
    return CODES.get(name, name) if isinstance(name, str) else name


def artifact(document: Any) -> Any:
    """An artifact without what its macros say."""
    if isinstance(document, dict) and "causal" in document:
        return {name: value for name, value in document.items() if name not in ARTIFACT}
    return document


def report(document: Any) -> Any:
    """A gate report that says what was required of it."""
    if isinstance(document, dict) and "required" not in document:
        kept = {name: value for name, value in document.items() if name not in REPORT}
        return {**kept, "required": REQUIRED}
    return document


def policy(document: Any) -> Any:
    """A gate policy by today's names."""
    if isinstance(document, dict) and "equals_sdpa" in document:
        return {("equals_baseline" if name == "equals_sdpa" else name): value for name, value in document.items()}
    return document


def standing(document: Any) -> Any:
    """The result of finals in which all finalists raced in the same processes: each of them in all."""
    if isinstance(document, dict) and any("processes" not in each for each in _finalists(document)):
        more = ({"processes": document["processes"], "alike": each["tied"]} | each for each in _finalists(document))
        return {**document, "finalists": list(more)}
    return document


def _finalists(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The finalists that are documents still, not models."""
    return [each for each in document.get("finalists", ()) if isinstance(each, dict)]
