"""Metrics in Prometheus' form: how far each study is, and what happened, from the store whenever they are asked for."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from autotuner.store.records import DeviceRecord
from autotuner.tuning.finals.standings import StudySummary
from autotuner.values.ratio import UNCONFIRMED
from autotuner.values.sweep import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _gauge(name: str, says: str, values: Iterable[tuple[str, ...]], *labels: str) -> Metric:
    """`values`: of each its labels, then the number."""
    made = GaugeMetricFamily(f"autotuner_{name}", says, labels=labels)
    for *of, value in values:
        made.add_metric(of, float(value))
    return made


def text(
    studies: Sequence[StudySummary],
    sweeps_by_state: Mapping[State, int],
    devices: Sequence[DeviceRecord],
    events_by_kind: Mapping[str, int],
) -> bytes:
    """The metrics of these studies, of the queue, and of the events that there ever were."""
    running = [(each.name, str(int(each.running))) for each in studies]
    judged = [(each.name, str(each.judged)) for each in studies]
    trials = [(each.name, str(verdict), str(n)) for each in studies for verdict, n in each.by_verdict.items()]
    best = [each for each in studies if each.best_speedup is not None]
    speedups = [(each.name, "finals" if each.best_confirmed else UNCONFIRMED, str(each.best_speedup)) for each in best]
    last = [(each.name, str(each.last_activity.timestamp())) for each in studies]
    states = [(str(state), str(sweeps_by_state.get(state, 0))) for state in State]
    health = [(health, str(count)) for health, count in Counter(each.health for each in devices).items()]
    served = str(sum(each.holder is not None for each in devices))
    events = CounterMetricFamily("autotuner_events", "What happened to sweeps and devices", labels=["kind"])
    for kind, count in events_by_kind.items():
        events.add_metric([kind], count)
    found = (
        _gauge("study_running", "1 while a driver works on the study", running, "study"),
        _gauge("study_judged", "Variants judged", judged, "study"),
        _gauge("study_trials", "Recorded trials by verdict, revoked ones left out", trials, "study", "verdict"),
        _gauge("study_best_speedup", "Time of the baseline over that of the best variant", speedups, "study", "by"),
        _gauge("study_last_activity_seconds", "When something was recorded last, Unix time", last, "study"),
        _gauge("sweeps", "Sweeps by state", states, "state"),
        _gauge("devices", "Devices of workers by health", health, "health"),
        _gauge("devices_served", "Devices that a living worker serves", [(served,)]),
        events,
    )
    return generate_latest(SimpleNamespace(collect=lambda: found))  # all that is asked of a registry
