"""What the command line says is in messages.txt, word for word; its help is in docs/reference/commands.md."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner import cli
from tests.cli import messages


@pytest.fixture(scope="module")
def now() -> str:
    """The file as it would be written now."""
    command = [sys.executable, "-m", messages.__name__]
    done = subprocess.run(command, cwd=messages.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_said_is_what_was_kept(now: str) -> None:
    """Where this fails on purpose, look at the difference, and write the file anew."""
    assert now.splitlines() == messages.FILE.read_text().splitlines()


def test_every_question_has_an_answer(now: str) -> None:
    answers = now.split("\nMistakes\n")[0].split("$ autotuner ")[1:]
    assert len(answers) == len(messages.ANSWERS)
    assert [answer for answer in answers if "[exit code " in answer] == []


def test_every_mistake_is_answered_in_one_line_without_python(now: str) -> None:
    mistakes = now.split("\nMistakes\n")[1]
    for call in mistakes.split("$ autotuner ")[2:]:  # without a command the help is shown
        command, *lines = call.strip().splitlines()
        said = [line for line in lines if line and not line.startswith("=")]
        assert len(said) == 2, call
        assert said[0].startswith("autotuner: "), call
        assert said[1] == "[exit code 2]", call
        for python in ("Traceback", "Error:", "',)", "dict_keys", "<class"):
            assert python not in said[0], command


def test_every_refusal_of_the_command_line_is_in_it(now: str) -> None:
    """Those of the room `cli` itself: the others have tests of their own beside what refuses."""
    flat = " ".join(now.split())
    missing = [words for words in refusals() if words not in flat and words not in ELSEWHERE]
    assert missing == []


ELSEWHERE = {
    "stopped before anything was judged; the same command starts again",
    "goes on; `autotuner sweep watch",
    "is cancelled; its study keeps what was judged",
    "characters, expected at least",
    "already: delete that line first",
    "is unconfirmed, torch serves: run `autotuner finals",
    ": cannot be read:",
    ": not UTF-8 text;",
    "; give the interpreter of an environment",
    "is not here)",
    "--ray needs Ray: pip install 'kernel-autotuner[ray]'",
}
"""What only a signal brings about (tests/cli/test_terminal.py, tests/cli/test_ending.py), a token, or missing packages
(tests/web/test_serve.py)."""


def refusals() -> Iterator[str]:
    """The longest constant part of each message that is raised in the room."""
    for path in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
                continue
            message = node.exc.args[0]
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            texts = [
                part.value.strip() for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            longest = max(texts, key=len, default="")
            if len(longest) > 12:
                yield longest
