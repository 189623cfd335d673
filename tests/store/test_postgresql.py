"""The store on a PostgreSQL server that is started for the tests; skipped where none is installed."""

from pathlib import Path

from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget
from tests.helpers import simulated
from tests.helpers.driven import WIDE, driver, trials_of


def test_a_sweep_judges_what_it_does_on_sqlite(url: str, tmp_path: Path) -> None:
    """Stopped once and gone on with; the driver writes Optuna's tables by statements of its own."""
    found = []
    for place in (url, str(tmp_path / "studies.db")):
        for until in (12, 30):
            with Store.open(place) as store:
                driver(store, simulated.backend(), width=WIDE).run(Budget(trials=until))
        with Store.open(place) as store:
            (study,) = standings.studies(store)
            trials = trials_of(store, study.name)
            outcomes = dict(store.outcomes(study.name))
        found.append(
            [(each.number, each.params, each.state, each.value, outcomes[each.number].verdict) for each in trials]
        )
    assert len(found[0]) == 30
    assert found[0] == found[1]
