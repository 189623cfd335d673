"""Which clocks and throttle reasons make a block void; and a machine without NVML."""

import pytest

from autotuner.devices.cuda.nvml import held_down


@pytest.mark.parametrize(("mhz", "reasons"), [(1980, 0), (1500, 0), (1486, 0), (1980, 0x1), (1900, 0x4)])
def test_a_usual_clock_counts(mhz: int, reasons: int) -> None:
    """Idle (0x1) and the power cap (0x4) are no faults: the cap is what the device does under load."""
    assert held_down(mhz, reasons, 1980) is None


@pytest.mark.parametrize(
    ("reasons", "said"), [(0x8, "hardware slowdown"), (0x20, "thermal"), (0x44, "thermal"), (0x80, "brake")]
)
def test_a_slowdown_voids_the_block(reasons: int, said: str) -> None:
    assert said in (held_down(1980, reasons, 1980) or "")


def test_a_clock_below_three_quarters_of_the_default_voids_the_block() -> None:
    assert "1484 MHz" in (held_down(1484, 0, 1980) or "")
