"""`python -m autotuner` and the console script. Imports nothing heavy: a job's process may import it again."""

from __future__ import annotations


def main() -> None:
    """Runs the command line."""
    from autotuner.cli.app import run

    run()


if __name__ == "__main__":
    main()
