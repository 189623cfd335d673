"""What docs/reference/architecture.md draws of the rooms, and the lines that the package may have."""

import pytest

from benchmarks import rooms_page
from tests import lines


@pytest.mark.slow
def test_every_arrow_of_the_diagram_goes_down_or_along_a_layer() -> None:
    layers = rooms_page.rooms()
    assert {room for arrow in rooms_page.arrows() for room in arrow} == {*layers}
    assert all(layers[one] <= layers[other] for one, other in rooms_page.arrows())


def test_the_package_has_no_more_lines_than_it_may() -> None:
    assert lines.main() == 0
