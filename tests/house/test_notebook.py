"""The notebook of examples/ runs, every cell of it, on a short search."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_TRIALS", "40")
    monkeypatch.setenv("NOTEBOOK_SEEDS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    folder = ROOT / "examples" / "notebook"
    notebook = nbformat.read(folder / "study.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("WARPS_M" in output.get("data", {}).get("text/plain", "") for output in outputs)
    assert sum("text/html" in output.get("data", {}) for output in outputs) == 3
