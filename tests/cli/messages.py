"""What the command line says, its help apart, in one file: `python -m tests.cli.messages` prints messages.txt.

Each command is called in this process, in a folder with a small store and space files with one mistake each.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotuner.cli import app as program
from autotuner.values import config
from tests.helpers.stores import sample_store

ROOT = Path(__file__).parent.parent.parent
FILE = Path(__file__).parent / "messages.txt"
ENVIRONMENT = {
    **{"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"},
    "AUTOTUNER_CACHE": "cache",
}
"""The file is made under these."""
SPACES = ", ".join(sorted(path.stem for path in config.spaces_dir().glob("*.toml")))
"""The names of the spaces that are shipped, as a message lists them."""

MISTAKES = {
    "not_toml": ('title = "', "title = '"),
    "unknown_key": ("threads = 1", "thread = 1"),
    "no_family": ('family = "rows"', 'family = "rowz"'),
    "no_device": ('backend = "cpu"', 'backend = "gpu"'),
    "no_parameter": ("BLOCK_N = [", "BLOKC_N = ["),
    "another_parameter": ("ROWS = [", "DEPTH = [1, 2]\nROWS = ["),
    "no_value": ("ROWS = [1, 2, 4, 8]", "ROWS = []"),
    "twice": ("ROWS = [1, 2, 4, 8]", "ROWS = [1, 2, 2]"),
    "wrong_default": ("BLOCK_N = 64\nROWS = 4", "BLOCK_N = 63\nROWS = 4"),
    "wrong_name_in_constraint": ("BLOCK_N <= SEQ_K", "BLOCK_K <= SEQ_K"),
    "wrong_constraint": ("BLOCK_N <= SEQ_K", "BLOCK_N <="),
    "nothing_left": ("BLOCK_N <= SEQ_K", "BLOCK_N > 9999"),
    "huge": ("seq_q = 256", "seq_q = 1073741824"),
    "wrong_dtype": ('dtype = "float32"', 'dtype = "float8"'),
    "no_such_size": ("head_dim = 64", "head_dim = 80"),
    "text_for_a_size": ("heads = 4", 'heads = "4"'),
}
"""Space files with one mistake: what is replaced by what in that of examples/own_kernel."""

ANSWERS = (
    ("status",),
    ("leaderboard",),
    ("leaderboard", "--limit", "2", "--json"),
    ("trials",),
    ("trials", "--csv", "--out", "trials.csv"),
    ("show",),
    ("show", "0"),
    ("show", "1"),
    ("show", "5"),
    ("explain",),
    ("status", "--show", "history"),
    ("status", "--show", "coverage"),
    ("status", "--show", "baselines"),
    ("sweep", "list"),
    ("study", "list"),
    ("export", "--format", "html"),
    ("export",),
    ("export", "--format", "t4"),
    ("cache", "show"),
    ("cache", "prune", "--to", "1G"),
)
"""What can be asked of the store in the folder."""
REFUSALS = (
    (),
    ("tun",),
    ("tune", "--trials", "many"),
    ("tune", "--trials", "0"),
    ("tune", "--no-such-option"),
    ("tune", "nowhere"),
    ("tune", "nowhere.toml"),
    ("tune", "sdpa_cpu", "--sampler", "mine"),
    ("tune", "sdpa_cpu", "--out", "."),
    ("tune", "sdpa_cpu", "--store", "no/such/folder.db"),
    ("tune", "sdpa_cpu", "--store", "mysql://there"),
    ("tune", "sdpa_cpu", "--store", ":memory:"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64)"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64) float8"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64) float32 attn_mask"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64) float32 dropout_p=0.1"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,1000) float32"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64) float32", "--problem", "(1,8,512,128) float32"),
    ("space", "show", "sdpa_cpu", "--problem", "(1,8,512,64) float32", "--problems", "shapes.toml"),
    ("space", "show", "sdpa_cpu", "--problems", "shapes.toml"),
    ("tune", "sdpa_cpu", "--threads", "0"),
    ("serve", "--families", "nowhere"),
    ("serve", "--workers", "1", "--read-only"),
    ("serve", "--spaces", "text.db"),
    ("export", "nothing", "--format", "html"),
    ("export", "--format", "html", "--out", "."),
    ("export", "--format", "html", "--estimates"),
    ("compare", "small", "small"),
    ("worker", "--until", "later"),
    ("worker", "--ray", "auto", "--devices", "abacus"),
    ("sweep", "watch", "7"),
    ("status", "nothing"),
    ("status", "--store", "none.db"),
    ("status", "--store", "text.db"),
    ("status", "--store", "."),
    ("status", "--store", "empty.db"),
    ("leaderboard", "--limit", "0"),
    ("trials", "--parquet"),
    ("trials", "--csv", "--json"),
    ("trials", "--out", "trials.csv"),
    ("show", "99"),
    ("show", "99999999999999999999"),
    ("show", "first"),
    ("show", "first", "old"),
    ("validate", "--lengths", "2048"),
    ("validate", "--store", "unmeasured.db"),
    ("export", "--format", "yaml"),
    ("export", "--out", "/dev/null"),
    ("export", "--out", "no/such/folder/best.json"),
    ("show", "--store", "unmeasured.db"),
    ("export", "--store", "unmeasured.db"),
    ("cache", "prune"),
    ("cache", "prune", "--to", "much"),
    ("gate", "99"),
    ("gate", "IMPL=plain"),
    ("gate", "IMPL=none", "--space", "right.toml"),
    ("gate", "IMPL=plain BLOCK_N", "--space", "right.toml"),
    ("gate", "IMPL=plain BLOCKS=1", "--space", "right.toml"),
    ("gate", "IMPL=plain BLOCK_N=63", "--space", "right.toml"),
    ("gate", "missing.so"),
    ("finals", "--minutes", "0"),
    ("finals", "--aa", "--blocks", "1"),
    ("gate",),
    ("gate", "0", "--reference"),
    ("gate", "IMPL=plain", "--space", "right.toml", "--arch", "sm_90", "--sanitize"),
    ("gate", "0", "--threads", "2"),
    ("regress", "missing.json"),
    ("verify", "text.db"),
    ("study", "copy", "small"),
    ("study", "copy", "text.db"),
    ("study", "delete", "small"),
    ("regress", "space.toml"),
    ("status", "--show", "everything"),
    *((name,) for name in program.MOVED),
    ("doctor", "--space", "missing"),
    ("space", "drop"),
    ("space", "show"),
    *(("space", "show", f"{name}.toml") for name in MISTAKES),
)
"""Mistakes, each of which is answered in one line."""


def lay_out(folder: Path) -> None:
    """The folder in which all is said."""
    shutil.copytree(ROOT / "examples" / "own_kernel", folder, dirs_exist_ok=True)
    text = (folder / "space.toml").read_text()
    (folder / "right.toml").write_text(text)
    for name, (old, new) in MISTAKES.items():
        assert old in text, name
        (folder / f"{name}.toml").write_text(text.replace(old, new, 1))
    (folder / "shapes.toml").write_text("problems = [{ batch = 1 }]\n")
    (folder / "text.db").write_text("no database\n" * 100)
    (folder / "empty.db").write_text("")
    sample_store(folder / "studies.db")
    sample_store(folder / "unmeasured.db")
    _forget_trials(folder / "unmeasured.db")


def _forget_trials(path: Path) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        for table in ("at_block", "at_heat", "at_finals", "at_trial"):
            raw.execute(f"DELETE FROM {table}")


def said(arguments: tuple[str, ...]) -> str:
    """What a command prints on both streams, and how it ends."""
    streams = io.StringIO()
    sys.argv = ["autotuner", *arguments]
    with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
        try:
            program.run()
        except SystemExit as end:
            code = end.code or 0
    return streams.getvalue() + (f"[exit code {code}]\n" if code else "")


def document(folder: Path) -> Iterator[str]:
    """The sections of the file."""
    yield "What the command line says. Made by `python -m tests.cli.messages > tests/cli/messages.txt`.\n"
    for title, calls in (
        ("Answers", ANSWERS),
        ("Mistakes", REFUSALS),
    ):
        yield f"{'=' * 100}\n{title}\n{'=' * 100}\n"
        for call in calls:
            yield f"$ autotuner {' '.join(part if ' ' not in part else repr(part) for part in call)}".rstrip() + "\n"
            yield neutral(said(tuple(call)), folder)


def neutral(text: str, folder: Path) -> str:
    """The text without what differs between machines."""
    text = text.replace(str(folder), "FOLDER").replace(str(folder.parent), "ABOVE").replace(str(ROOT), "ROOT")
    text = text.replace("python -m tests.cli.autotuner", "autotuner").replace(SPACES, "SPACES")
    text = re.sub(r"0x[0-9a-f]{8,}", "0x...", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main() -> None:
    """Prints the file, in a process with its environment: widths are read when modules are imported."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()) or "AUTOTUNER_STORE" in os.environ:
        environment = {**os.environ, **ENVIRONMENT}
        environment.pop("AUTOTUNER_STORE", None)
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name], environment)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "user"
        lay_out(folder)
        os.chdir(folder)
        out = sys.stdout
        for part in document(folder):
            out.write(f"{part}\n")


if __name__ == "__main__":
    main()
