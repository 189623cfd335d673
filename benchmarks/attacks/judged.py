"""Every attack on the judge through the real commands: which got a latency, a crown, an export.

    python -m benchmarks.attacks.judged [--device cpu|cuda] [--only NAME ...] [--minutes M] [--json OUT.json] [--hold]

Attacks of a group stand in one space beside an honest variant: `autotuner tune` judges them all. Each that has a
latency then is alone with the honest one: `tune` with finals, `finals`, `export`, and `gate`. NAME is an attack or a
group; with --only, or where the time of a group is over, the rows of others in OUT.json stay. Shares have exact 95 %
intervals (Clopper and Pearson). An attack that a disturbed machine kept from its verdict has no latency, and counts as
not judged.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES, Wishes
from autotuner.race.statistics import share_interval
from benchmarks import holds
from benchmarks.attacks.catalogue import Attack, Group, copy_families, groups
from benchmarks.provenance import ROOT, command_line
from tests.mutants.expectations import Backend

EACH_S = 25.0
"""Seconds that an attack is given in a sweep of many."""
ALONE_MINUTES = 1.5
LEAST = 60
"""Attacks that must have been judged for the aim to be met."""
GAINS = ("latency", "paid", "crown", "export")
"""At the end: a latency, and one that is better than the honest variant's by PAID; what finals confirmed to be the
fastest; what is in the table of an export."""
PAID = 1.05
Row = dict[str, Any]
Point = dict[str, str | int]


class Commands:
    """The command line, with a store and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = {"AUTOTUNER_STORE": str(folder / "tests" / "studies.db"), "AUTOTUNER_CACHE": str(folder / "cache")}
        self._around = os.environ | told | {"NO_COLOR": "1", "COLUMNS": "200"}

    def run(self, *words: str, limit_s: float) -> tuple[int, str]:
        """Exit status and what was said, JSON on standard output alone."""
        line = [sys.executable, "-m", "autotuner", *words]
        try:
            done = subprocess.run(
                line, cwd=self.folder, env=self._around, capture_output=True, text=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return 124, f"no end within {limit_s:.0f} s"
        return done.returncode, done.stdout if "--json" in words else done.stdout + done.stderr

    def tuned(
        self, group: Group, points: Sequence[dict[str, str | int]], minutes: float, *more: str
    ) -> tuple[int, str]:
        """A sweep over these points; its file is best.json."""
        self.space(group).write_text(group.space(points))
        count = str(math.prod(len({point[name] for point in points}) for name in group.honest))
        words = ("--sampler", "exhaustive", "--trials", count, "--minutes", f"{minutes:.2f}", "--calm", "--cold")
        (self.folder / "best.json").unlink(missing_ok=True)
        return self.run("tune", str(self.space(group)), *words, *more, limit_s=60 * minutes + 120)

    def space(self, group: Group) -> Path:
        return self.folder / group.folder.relative_to(ROOT).parent / f"{group.name}.toml"

    def trials(self) -> list[Row]:
        """Those of the latest study."""
        code, said = self.run("trials", "--json", limit_s=60)
        found: list[Row] = json.loads(said) if code == 0 else []
        return found


def _link_to_the_store(folder: Path) -> None:
    """For the build that follows it."""
    (folder / "tests" / "mutants" / "attacks" / "link.h").symlink_to(folder / "tests" / "studies.db")


def fits(attack: Attack, parameters: dict[str, Any]) -> bool:
    return all(parameters.get(name) == value for name, value in attack.parameters.items())


def row(group: Group, attack: Attack, **found: Any) -> Row:
    """What became of an attack."""
    about = {"name": attack.name, "group": group.name, "kind": attack.kind, "what": attack.what}
    return {**about, **dict.fromkeys(GAINS, False), "judged": True, **found}


def judged_together(here: Commands, group: Group, minutes: float | None) -> Iterator[Row]:
    """All attacks of a group in one sweep, each that has a latency then alone; those that its time left out are not
    judged."""
    if group.flags:
        document = here.folder / group.folder.relative_to(ROOT) / "kernel.toml"
        told = document.read_text()
        document.write_text(told.replace(f"[cpu.{group.impl}]", f"[cpu.{group.impl}]\nflags = {list(group.flags)}"))
        code, said = here.tuned(group, [group.honest], 1.0, "--no-finals")
        document.write_text(told)
        ending = {"verdict": "refused", "code": f"exit {code}", "detail": said.strip().splitlines()[-1]}
        passed = any(each["speedup"] for each in here.trials()) if code == 0 else False
        yield row(group, group.attacks[0], **ending, latency=passed)
        return
    points = [group.honest, *(attack.parameters for attack in group.attacks)]
    code, said = here.tuned(group, points, minutes or (60 + EACH_S * len(points)) / 60, "--no-finals")
    last_words = (said.strip().splitlines() or [""])[-1]
    trials = here.trials()
    for attack in group.attacks:
        mine = [each for each in trials if fits(attack, each["parameters"])]
        if not mine:
            yield row(group, attack, judged=False, verdict="none", code=f"exit {code}", detail=last_words)
            continue
        last = mine[-1]
        ending = {"verdict": last["verdict"], "code": last["fault"] or "", "detail": last["detail"] or ""}
        if last["speedup"] is None:
            yield row(group, attack, **ending, judged=last["verdict"] not in ("disturbed", "infra_error"))
        elif last["censored"]:  # slower than the honest one: no finals would look at it
            yield row(group, attack, **ending, latency=True, speedup=last["speedup"])
        else:
            yield alone(here, group, attack)


def alone(here: Commands, group: Group, attack: Attack) -> Row:
    """An attack beside the honest variant, to the end."""
    code, said = here.tuned(group, [group.honest, attack.parameters], ALONE_MINUTES)
    finals_code, finals = 0, ""
    if not any(each["confirmed"] or each["revoked"] for each in here.trials()):
        finals_code, finals = here.run("finals", "--minutes", "1", limit_s=200)
    mine = next((each for each in reversed(here.trials()) if fits(attack, each["parameters"])), None)
    export_code, exported = here.run("export", "--out", "-", limit_s=120)
    table = json.loads(exported).get("table") if export_code == 0 and exported.startswith("{") else None
    served = [each["use"] for each in table["entries"] if each.get("use")] if table else []
    point = " ".join(f"{name}={value}" for name, value in {"IMPL": group.impl, **attack.parameters}.items())
    gate_code, _ = here.run("gate", point, "--space", str(here.space(group)), "--json", limit_s=120)
    if mine is None:
        return row(group, attack, judged=False, verdict="none", code=f"exit {code}", detail=said[-300:])
    latency = mine["speedup"] is not None and not mine["revoked"]
    honest = [each["speedup"] for each in here.trials() if fits(group.plain, each["parameters"]) and each["speedup"]]
    confirmed = latency and mine["confirmed"] is not None
    variants = table.get("variants", []) if table else []
    serves = any(fits(attack, each.get("parameters", {})) for each in variants) and bool(served)
    fault = mine["revoked"] or mine["fault"] or ""
    detail = mine["detail"] or finals.strip()[-300:]
    return row(
        group,
        attack,
        verdict="revoked" if mine["revoked"] else mine["verdict"],
        code=fault if isinstance(fault, str) else json.dumps(fault),
        detail=detail,
        latency=latency,
        paid=bool(latency and honest and mine["speedup"] > PAID * max(honest)),
        honest=max(honest, default=None),
        crown=confirmed and _leads(here.trials(), mine),
        export=serves,
        speedup=mine["speedup"],
        confirmed=mine["confirmed"],
        exits={"tune": code, "finals": finals_code, "export": export_code, "gate": gate_code},
    )


def _leads(trials: list[Row], mine: Row) -> bool:
    """Whether no other is confirmed to be faster, and the baseline is slower."""
    rest = [each["confirmed"] for each in trials if each["confirmed"] and each["number"] != mine["number"]]
    return bool(mine["confirmed_low"] > 1 and mine["confirmed"] >= max(rest, default=0))


def shares(rows: Sequence[Row]) -> dict[str, Any]:
    """Of those judged the share with each gain."""
    judged = [each for each in rows if each["judged"]]
    found = {}
    for gain in GAINS:
        count = sum(each[gain] for each in judged)
        low, high = share_interval(count, len(judged))
        found[gain] = {"count": count, "of": len(judged), "low": low, "high": high}
    return found


def wanted(device: Backend, only: Sequence[str]) -> list[Group]:
    """The groups, with the attacks that are asked for by name."""
    found = []
    for group in groups(device):
        attacks = tuple(each for each in group.attacks if not only or group.name in only or each.name in only)
        if attacks:
            found.append(group._replace(attacks=attacks))
    names = [name for group in found for name in (group.name, *(each.name for each in group.attacks))]
    holds.measured(names, "attack", only)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", nargs="+", default=[], help="attacks or groups, by name")
    parser.add_argument("--minutes", type=float, help="for the sweep of each group; what is left out is not judged")
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    chosen = wanted(options.device, options.only)
    before = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows: dict[tuple[str, str], Row] = {(each["group"], each["name"]): each for each in before}
    for group in chosen:
        with tempfile.TemporaryDirectory(prefix="attacks_") as folder:
            copy_families(Path(folder))
            here, started = Commands(Path(folder)), time.monotonic()
            _link_to_the_store(Path(folder))
            for each in judged_together(here, group, options.minutes):
                if each["judged"] or (each["group"], each["name"]) not in rows:
                    rows[each["group"], each["name"]] = each
                gains = [gain for gain in GAINS if each[gain]] or ["nothing"]
                if options.json:
                    options.json.write_text(json.dumps(document(list(rows.values()), options.device), indent=1) + "\n")
                print(f"{group.name} {each['name']}: {each['verdict']} {each['code']}: {', '.join(gains)}", flush=True)
            print(f"{group.name}: {time.monotonic() - started:.0f} s", flush=True)
    found = shares(list(rows.values()))
    for gain, share in found.items():
        print(f"{gain}: {share['count']} of {share['of']}, {share['low']:.1%} to {share['high']:.1%}")
    if options.hold:
        got = [f"{each['name']} got {gain}" for each in rows.values() for gain in GAINS[1:] if each[gain]]
        few = [] if found["latency"]["of"] >= LEAST else [f"fewer than {LEAST} attacks were judged"]
        holds.require(got + few)


def document(rows: list[Row], kind: str) -> Row:
    """What is kept."""
    device = DEVICES[kind].choose(Wishes(threads=1 if kind == "cpu" else None)).device
    return {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.name,
        "environment": device.environment,
        "shares": shares(rows),
        "endings": Counter(each["code"] or each["verdict"] for each in rows if each["judged"]),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
