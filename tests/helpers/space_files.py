"""Space files made up for tests."""

from typing import Any

from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.variant import Value
from tests.helpers.files import text

TEXT = text("example.toml")
FACTS: dict[str, int | str | bool] = {"CPU_VECTOR_BYTES": 32, "CPU_FMA": True, "ARCH": "zen4"}
PROBLEM = {"op": "sdpa", "batch": 1, "heads": 2, "seq_q": 8, "seq_k": 8, "head_dim": 64, "dtype": "float32"}


def made(text: str = TEXT, **facts: int | str | bool) -> Space:
    return Space.enumerate(SpaceFile.parse(text, "dir/x.toml"), {**FACTS, **facts})


def replaced(*pairs: tuple[str, str]) -> str:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def file_of(parameters: dict[str, Any], constraints: list[str], default: dict[str, Value], **rest: Any) -> SpaceFile:
    reasons = [{"expression": text, "reason": "because"} for text in constraints]
    common = {"title": "t", "family": "sdpa", "backend": "cpu", "problems": [PROBLEM, {**PROBLEM, "seq_q": 12}]}
    return SpaceFile.of({**common, "parameters": parameters, "constraints": reasons, "default": default, **rest})
