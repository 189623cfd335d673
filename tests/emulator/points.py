"""A point of each CUDA implementation of attention that the emulator runs (points.toml), small in every way."""

import tomllib
from pathlib import Path

Point = dict[str, int | str]
DEFAULTS: dict[str, Point] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
SCALAR, WMMA, MMA, WGMMA = (DEFAULTS[name] for name in ("scalar", "wmma", "mma", "wgmma"))
