"""Metrics in Prometheus' form: how far each study is, and what happened, from the store whenever they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autotuner.store.sweep_records import DeviceRecord
from autotuner.tuning.finals.standings import StudySummary
from autotuner.values.sweep import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Studies(Collector):
    def __init__(self, studies: Sequence[StudySummary]) -> None:
        self._studies = studies

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("autotuner_study_running", "1 while a driver works on the study", labels=["study"])
        judged = GaugeMetricFamily("autotuner_study_judged", "Variants judged", labels=["study"])
        verdicts = GaugeMetricFamily(
            "autotuner_study_trials", "Recorded trials by verdict, revoked ones left out", labels=["study", "verdict"]
        )
        speedup = GaugeMetricFamily(
            "autotuner_study_best_speedup", "Time of the baseline over that of the best variant", labels=["study", "by"]
        )
        last = GaugeMetricFamily(
            "autotuner_study_last_activity_seconds", "When something was recorded last, Unix time", labels=["study"]
        )
        for study in self._studies:
            running.add_metric([study.name], float(study.running))
            judged.add_metric([study.name], study.judged)
            last.add_metric([study.name], study.last_activity.timestamp())
            for verdict, count in study.by_verdict.items():
                verdicts.add_metric([study.name, str(verdict)], count)
            if study.best_speedup is not None:
                speedup.add_metric([study.name, "finals" if study.best_confirmed else "search"], study.best_speedup)
        yield from (running, judged, verdicts, speedup, last)


class _Queue(Collector):
    def __init__(self, by_state: Mapping[State, int], devices: Sequence[DeviceRecord]) -> None:
        self._by_state, self._devices = by_state, devices

    def collect(self) -> Iterator[Metric]:
        sweeps = GaugeMetricFamily("autotuner_sweeps", "Sweeps by state", labels=["state"])
        for state in State:
            sweeps.add_metric([str(state)], self._by_state.get(state, 0))
        devices = GaugeMetricFamily("autotuner_devices", "Devices of workers by health", labels=["health"])
        for health, count in Counter(each.health for each in self._devices).items():
            devices.add_metric([health], count)
        served = GaugeMetricFamily("autotuner_devices_served", "Devices that a living worker serves")
        served.add_metric([], sum(each.holder is not None for each in self._devices))
        yield from (sweeps, devices, served)


class _Events(Collector):
    def __init__(self, by_kind: Mapping[str, int]) -> None:
        self._by_kind = by_kind

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily("autotuner_events", "What happened to sweeps and devices", labels=["kind"])
        for kind, count in self._by_kind.items():
            events.add_metric([kind], count)
        yield events


def text(
    studies: Sequence[StudySummary],
    sweeps_by_state: Mapping[State, int],
    devices: Sequence[DeviceRecord],
    events_by_kind: Mapping[str, int],
) -> bytes:
    """The metrics of these studies, of the queue, and of the events that there ever were."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Studies(studies))
    registry.register(_Queue(sweeps_by_state, devices))
    registry.register(_Events(events_by_kind))
    return generate_latest(registry)
