"""The searches that benchmarks replay on recorded spaces."""

from autotuner.spaces.space import Space
from autotuner.tuning.workbench import Workbench, load_space
from benchmarks.search.replay_run import started_at_random


def test_each_seed_begins_at_another_point_of_each_branch() -> None:
    space = Workbench(load_space("sdpa_cpu")).space
    assert len(space.branches) > 1
    begun = [started_at_random(space, seed) for seed in range(4)]
    for place in range(len(space.branches)):
        assert len({each.branches[place].default_index for each in begun}) > 1
    assert [each.default_index for each in begun] == [started_at_random(space, seed).default_index for seed in range(4)]
    assert [_of_file(each) for each in begun] == [each.default for each in begun]


def _of_file(space: Space) -> dict[str, object]:
    return dict(space.file.default)
