"""A sweep on a real terminal of 80 columns: what is drawn, and Ctrl-C."""

from pathlib import Path

import pytest

from tests.helpers.command_line import PATIENCE, autotuner, lay_out
from tests.helpers.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


@pytest.mark.sampled(1, of="whole sweeps")
def test_a_sweep_shows_what_it_does_and_says_what_it_wrote(folder: Path) -> None:
    terminal = Terminal(folder, "tune", "space.toml", "--trials", "4", "--finals-minutes", "0.1", *PATIENCE)
    assert terminal.end() == 0, terminal.text[-2000:]
    drawn = [line for line in terminal.lines if "━" in line]
    assert any(line.startswith("4/4 ") for line in drawn)
    assert any(line.startswith("finals ━") for line in drawn)
    assert max(map(len, drawn)) < 80
    for doing in ("timing the baselines; 0 s", "building ", "judging ", "timing trial "):
        assert any(line.startswith(doing) for line in terminal.lines), doing
    last = [line for line in terminal.lines if line][-1]
    assert "best.json has trial" in terminal.text or "best.json serves " in terminal.text
    assert last.endswith(".")


@pytest.mark.sampled(1, of="whole sweeps")
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(folder: Path) -> None:
    more = ', "batches_swapped", "columns_swapped", "dims_dropped", "drop_tail_key", "k_shifted", "head_zero_for_all"]'
    text = (folder / "space.toml").read_text()
    (folder / "space.toml").write_text(text.replace('"last_row_unwritten"]', f'"last_row_unwritten"{more}'))
    terminal = Terminal(folder, "tune", "space.toml", "--trials", "10", "--no-finals", "--calm")
    terminal.until("] trial 0:")
    terminal.press("\x03")
    assert terminal.end() == 130
    said = " ".join(terminal.text.split())
    assert " kept of " in said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    again = autotuner(folder, "tune", "space.toml", "--trials", "1", "--no-finals")
    assert "judged already" in again.stdout
