"""A sweep as a process of its own: `python -m tests.helpers.simulated_sweep STORE TRIALS` on the simulated space,
with builds beside the device. Prints one line a judged variant.

The processes of jobs import this module too: what the driver alone needs is imported in `main`.
"""

import sys
from contextlib import closing

from tests.helpers import simulated


def main(store: str, trials: str) -> None:
    from autotuner.run.local import LocalExecutor
    from autotuner.store import Store
    from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
    from autotuner.tuning.run.plan import Plan
    from autotuner.tuning.workbench import STATISTICS

    def say(event: Event) -> None:
        if isinstance(event, Judged):
            sys.stdout.write(f"[{event.number}]\n")
            sys.stdout.flush()

    imports = (simulated.__name__, STATISTICS)
    executor = LocalExecutor(simulated.backend, imports, builders=2, overlap=True, jobs_per_process=8)
    with Store.open(store) as opened, closing(executor):
        plan = Plan(simulated.space(), simulated.DEVICE, simulated.conditions())
        Driver(opened, executor, plan, say).run(Budget(trials=int(trials)))


if __name__ == "__main__":
    main(*sys.argv[1:])
