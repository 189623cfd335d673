"""Which importances of parameters to believe: those of Optuna and of `autotuner explain`, after searches of landscapes
whose every point was measured, against the importances in the whole landscape. docs/reference/optuna.md.

  python -m benchmarks.search.importances [OUT.json] [--seeds 5]

Two settings: a landscape as it is, and with all points of one value rejected (the last value of the parameter with the
most values). The truth is the share of the variance of ln(t) over all valid points that a parameter explains alone,
where a reject is as slow as the slowest tenth of the others. All shares are scaled to a sum of 1, as Optuna's are.
Optuna's fANOVA needs scikit-learn, which nothing else here does.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

from autotuner.spaces.space import Space
from autotuner.store import Store, queries
from autotuner.values.conditions import TIE
from autotuner.values.verdict import Verdict
from autotuner.views.surrogate_beliefs import JudgedPoints, share_alone, surrogate_beliefs
from benchmarks.provenance import RESULTS, provenance
from benchmarks.search.replay_run import Clock, VirtualExecutor, search
from benchmarks.search.replay_spaces import Recorded, read, write_json

Shares = dict[str, float]

LANDSCAPES = RESULTS / "landscapes"
SAMPLERS = "evolution", "random"
TRIALS = 60, 200
SLOW = 0.9
"""Quantile of the measured that a reject counts as, as for the surrogate."""


class Setting(NamedTuple):
    """A landscape, and the value whose points are all rejected in it, if any."""

    recorded: Recorded
    rejected: tuple[str, int | str] | None

    @property
    def name(self) -> str:
        """As the results name it."""
        return self.recorded.name + ("" if self.rejected is None else f", {self.rejected[0]}={self.rejected[1]} fails")


def settings() -> Iterator[Setting]:
    """Every kept landscape, as it is and with a value that fails."""
    for path in sorted(LANDSCAPES.rglob("*.json.gz")):
        recorded = read(path)
        yield Setting(recorded, None)
        yield with_rejects(recorded)


def with_rejects(recorded: Recorded) -> Setting:
    """The same where the last value of the parameter with the most values is always rejected."""
    space = recorded.space
    name = max((each for each in varying(space) if each != "IMPL"), key=lambda each: len(space.values[each]))
    column, value = space.rows[:, space.parameters.index(name)], space.values[name][-1]
    fails = column == len(space.values[name]) - 1
    ms = np.where(fails, np.nan, recorded.ms)
    faults = tuple(Verdict.INCORRECT if bad else old for bad, old in zip(fails, recorded.faults, strict=True))
    return Setting(replace(recorded, ms=ms, faults=faults), (name, value))


def varying(space: Space) -> dict[str, Any]:
    """The places of the values of each parameter that varies."""
    columns = {name: space.rows[:, place] for place, name in enumerate(space.parameters)}
    return {name: column for name, column in columns.items() if np.ptp(column) > 0}


def truth(setting: Setting) -> Shares:
    """What each parameter explains alone in the whole landscape."""
    log = np.log(setting.recorded.ms)
    log = np.where(np.isnan(log), np.nanquantile(log, SLOW), log)
    return {name: share_alone(column, log) for name, column in varying(setting.recorded.space).items()}


def explained(store: Store, study: str, space: Space, seed: int) -> Shares:
    """What `autotuner explain` says."""
    found = JudgedPoints(space, queries.judged(store, study), {})
    beliefs = surrogate_beliefs(space, found, seed, TIE)
    return {} if beliefs is None else {each.parameter: each.share for each in beliefs.parameters}


def by_optuna(study: optuna.Study, evaluator: Callable[[], Any]) -> Shares:
    """What Optuna says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator()))


def drawn(study: optuna.Study, name: str, value: int | str) -> dict[str, Any]:
    """What Optuna's slice plot of a parameter shows: how many trials, and whether a value is on its axis."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("agg")
    logging.disable(logging.WARNING)  # Optuna says of each trial that it leaves out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes: Any = optuna.visualization.matplotlib.plot_slice(study, params=[name])
    axes.figure.canvas.draw()
    count = sum(len(np.asarray(points.get_offsets())) for points in axes.collections)
    labels = {text.get_text() for text in axes.get_xticklabels()}
    plt.close("all")
    logging.disable(logging.NOTSET)
    return {"drawn": count, "value_is_shown": str(value) in labels}


def compared(true: Shares, said: Mapping[str, float]) -> dict[str, Any]:
    """How far shares are from the truth; both are scaled to a sum of 1, and what is not named counts 0."""
    whole, all_said = sum(true.values()), sum(said.values())
    there = {name: (share / whole, said.get(name, 0.0) / all_said if all_said else 0.0) for name, share in true.items()}
    return {
        "off_by": fmean(abs(one - other) for one, other in there.values()),
        "largest": float(max(abs(one - other) for one, other in there.values())),
        "right_first": max(true, key=lambda name: true[name]) == max(true, key=lambda name: said.get(name, 0.0)),
        "rank_correlation": _rank_correlation(list(there.values())),
        "missing": sorted(set(true) - set(said)),
    }


def _rank_correlation(pairs: list[tuple[float, float]]) -> float:
    from scipy.stats import spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of equal shares
        found = float(spearmanr([one for one, _ in pairs], [other for _, other in pairs]).statistic)
    return 0.0 if math.isnan(found) else found


def searched(setting: Setting, sampler: str, trials: int, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of one search: who says what."""
    clock, space = Clock(charge=False), setting.recorded.space
    true = truth(setting)
    memory = Path("/dev/shm")
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None))
        store = held.enter_context(closing(Store.open(f"{folder}/studies.db")))
        executor = VirtualExecutor(setting.recorded, 1, clock, 0.0, trials)
        search(setting.recorded, executor, clock, sampler, seed, store)
        name = queries.resolve_study(store)
        study = optuna.load_study(study_name=name, storage=store.optuna_storage())
        said = {
            "explain": explained(store, name, space, seed),
            "Optuna, PED-ANOVA (its default)": by_optuna(study, PedAnovaImportanceEvaluator),
            "Optuna, fANOVA": by_optuna(study, lambda: FanovaImportanceEvaluator(seed=seed)),
        }
        about = {"setting": setting.name, "sampler": sampler, "trials": trials, "seed": seed}
        for who, shares in said.items():
            yield {**about, "who": who, **compared(true, shares), **_of_the_rejected(setting, true, shares)}
        if setting.rejected is not None:
            yield {**about, "who": "slice plot", **_vanished(setting.rejected, study, store, name)}


def _of_the_rejected(setting: Setting, true: Shares, said: Shares) -> dict[str, float]:
    """Shares of the parameter with the value that fails."""
    if setting.rejected is None:
        return {}
    name = setting.rejected[0]
    return {
        "true_share": true[name] / sum(true.values()),
        "said_share": said.get(name, 0.0) / (sum(said.values()) or 1.0),
    }


def _vanished(rejected: tuple[str, int | str], study: optuna.Study, store: Store, name: str) -> dict[str, Any]:
    """What Optuna's slice plot has of a study with a value that fails."""
    parameter, value = rejected
    judged = queries.judged(store, name)
    tried = [each for each in judged if each.point.get(parameter) == value]
    shown = drawn(study, parameter, value)
    return {"trials": len(judged), "tried": len(tried), **shown}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over landscapes and seeds."""
    found = []
    for fails in (False, True):
        for sampler in SAMPLERS:
            for trials in TRIALS:
                for who in dict.fromkeys(row["who"] for row in rows if "off_by" in row):
                    mine = [
                        row
                        for row in rows
                        if (row["who"], row["sampler"], row["trials"]) == (who, sampler, trials)
                        and ("fails" in row["setting"]) == fails
                    ]
                    found.append({"fails": fails, "sampler": sampler, "trials": trials, "who": who, **_means(mine)})
    return found


def _means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = "off_by", "largest", "right_first", "rank_correlation", "true_share", "said_share"
    return {"searches": len(rows)} | {
        name: round(fmean(row[name] for row in rows), 4) for name in names if rows and all(name in row for row in rows)
    }


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=RESULTS / "importances.json")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = [
        row
        for setting in settings()
        for sampler in SAMPLERS
        for trials in TRIALS
        for seed in range(options.seeds)
        for row in searched(setting, sampler, trials, seed)
    ]
    slices = [row for row in rows if row["who"] == "slice plot"]
    document = {
        **provenance(),
        "seeds": options.seeds,
        "landscapes": sorted({row["setting"].partition(",")[0] for row in rows}),
        "summary": summary(rows),
        "slice_plot": {
            "studies": len(slices),
            "tried": sum(row["tried"] > 0 for row in slices),
            "value_is_shown": sum(row["value_is_shown"] for row in slices),
            "trials": sum(row["trials"] for row in slices),
            "drawn": sum(row["drawn"] for row in slices),
        },
    }
    write_json(document, options.out)
    print(json.dumps(document["summary"], indent=1))


if __name__ == "__main__":
    main()
