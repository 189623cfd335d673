"""Whether the package has no more lines than it may: the number stands in pyproject.toml.

python -m tests.lines
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """0 where it has not; else 1, and one line that says what to do."""
    most = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["autotuner"]["lines"]
    found = sum(len(path.read_text().splitlines()) for path in (ROOT / "autotuner").rglob("*.py"))
    if found > most:
        print(
            f"autotuner/ has {found:,} lines of Python, more than {most:,}: take something away, or raise"
            " [tool.autotuner] lines in pyproject.toml in this commit, with the reason in CHANGELOG.md"
        )
    return int(found > most)


if __name__ == "__main__":
    sys.exit(main())
