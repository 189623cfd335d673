"""A sampler of another package: from the best point so far to a neighbour that differs in one value."""

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.point_sampler import PointSampler, Seen


class Downhill(PointSampler):
    """Any point at first, and where no neighbour is left."""

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        free, measured = np.flatnonzero(~asked), np.isfinite(seen.objectives)
        if measured.any():
            best = seen.indices[measured][np.argmin(seen.objectives[measured])]
            differs = (self._space.rows[free] != self._space.rows[best]).sum(axis=1)
            free = free[differs == differs.min()]
        return int(self.generator(trial.number).choice(free))
