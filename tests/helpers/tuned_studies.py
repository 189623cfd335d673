"""Studies with finals, made up, for tests of what an export says."""

import json
from pathlib import Path

from autotuner.devices import DEVICES
from autotuner.store import Store, StudyRecord
from autotuner.values.outcome import Heat
from tests.helpers.recorded import CALIBRATION, heat, measured, study_record

SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "best.schema.json").read_text())


def record(*problems: object) -> StudyRecord:
    """A study of a device that says what another one must have."""
    plain = study_record()
    facts = dict.fromkeys(DEVICES["cpu"].proven_by, 1)
    device = plain.device.model_copy(update={"facts": facts})
    return plain.model_copy(update={"device": device, "problems": problems or plain.problems})


def tuned(store: Store, study: StudyRecord, tiles: tuple[int, ...] = (16, 32)) -> None:
    store.ensure_study(study)
    session = store.start_session(study.name, CALIBRATION, {"torch": "2.11"})
    for number, tile in enumerate(tiles):
        store.record(study.name, session, number, measured(tile, 50.0))


def of_two(one: dict[int, float], other: dict[int, float], process: int) -> Heat:
    """A heat on two problems."""
    first, second = heat(one, process), heat(other, process + 100)
    return first.model_copy(
        update={
            "baselines": ("flash", "flash"),
            "us": tuple((a[0], b[0]) for a, b in zip(first.us, second.us, strict=True)),
            "baseline_us": (first.baseline_us[0], second.baseline_us[0]),
        }
    )
