"""Every attack on the judge through the real commands: which got a latency, a crown, an export.

    python -m benchmarks.attacks.judged [--device cpu|cuda] [--only NAME ...] [--minutes M] [--json OUT.json] [--hold]

Attacks of a group stand in one space beside an honest variant: `autotuner tune` judges them all, `finals` each that may
be the fastest, alone beside the baseline; then come `export`, and `gate` for each whose race was not given up. NAME is
an attack, a group, or GROUP/ATTACK; with --only, or where the time of a group is over, the rows of others in OUT.json
stay. Shares have exact 95 % intervals (Clopper and Pearson). An attack that a disturbed machine kept from its verdict
has no latency, and counts as not judged.
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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import holds
from benchmarks.attacks.catalogue import Attack, Group, copy_families, groups
from benchmarks.provenance import ROOT, command_line, measured_on
from tests.mutants.expectations import Backend

EACH_S = 25.0
"""Seconds that an attack is given in a sweep of many."""
FINALS_MINUTES = {"cpu": 2, "cuda": 1}
"""A heat is shorter on CUDA, where a process holds many."""
LEAST = 60
"""Attacks that must have been judged for the aim to be met."""
GAINS = ("latency", "paid", "crown", "export")
"""At the end: a latency; one better than the honest variant's by PAID; confirmed by finals to be faster than the
baseline; in the table of an export."""
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

    def gate(self, group: Group, attack: Attack) -> str:
        """What the gate says of an attack, by its exit status."""
        point = " ".join(f"{name}={value}" for name, value in {"IMPL": group.impl, **attack.parameters}.items())
        code, _ = self.run("gate", point, "--space", str(self.space(group)), "--json", limit_s=200)
        return {0: "pass", 1: "rejected"}.get(code, f"exit {code}")

    def trials(self) -> list[Row]:
        """Those of the latest study."""
        code, said = self.run("trials", "--json", limit_s=60)
        found: list[Row] = json.loads(said) if code == 0 else []
        return found


def _link_to_the_store(folder: Path) -> None:
    """For the build that follows it."""
    (folder / "tests" / "mutants" / "attacks" / "store.h").symlink_to(folder / "tests" / "studies.db")


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
        head = f"[{group.device}.{group.impl}]"
        document.write_text(told.replace(head, f"{head}\nflags = {list(group.flags)}"))
        code, said = here.tuned(group, [group.honest], 1.0, "--no-finals")
        document.write_text(told)
        last_words = (said.strip().splitlines() or [""])[-1]
        # A command that fails for another reason has said nothing of the flag.
        refused = code != 0 and any(flag in last_words for flag in group.flags)
        ending = {"verdict": "refused" if refused else "none", "code": f"exit {code}", "detail": last_words}
        passed = any(each["speedup"] for each in here.trials()) if code == 0 else False
        yield row(group, group.attacks[0], **ending, judged=refused or passed, latency=passed)
        return
    points = [group.honest, *(attack.parameters for attack in group.attacks)]
    code, said = here.tuned(group, points, minutes or (60 + EACH_S * len(points)) / 60, "--no-finals")
    last_words = (said.strip().splitlines() or [""])[-1]
    allowed = FINALS_MINUTES[group.device]
    finals_code, finals = here.run("finals", "--minutes", str(allowed), limit_s=120 * allowed + 120)
    export_code, exported = here.run("export", "--out", "-", limit_s=120)
    trials = here.trials()
    honest = max((each["speedup"] or 0 for each in trials if fits(group.plain, each["parameters"])), default=0)
    exits = {"tune": code, "finals": finals_code, "export": export_code}
    for attack in group.attacks:
        mine = [each for each in trials if fits(attack, each["parameters"])]
        if not mine:
            yield row(group, attack, judged=False, verdict="none", code=f"exit {code}", detail=last_words)
            continue
        last = mine[-1]
        found = row(group, attack, **_ending(last), **_gains(attack, last, honest, exported if not export_code else ""))
        if found["latency"]:
            found |= {"honest": honest, "speedup": last["speedup"], "confirmed": last["confirmed"], "exits": exits}
            found["finals"] = finals.strip()[-300:] if finals_code else ""
            found["gate"] = "" if last["censored"] else here.gate(group, attack)
        yield found


def _ending(trial: Row) -> Row:
    """The verdict and what it rests on, of what the finals revoked theirs."""
    revoked = trial["revoked"]
    return {
        "verdict": "revoked" if revoked else trial["verdict"],
        "code": (revoked if isinstance(revoked, str) else trial["fault"]) or "",
        "detail": (trial["detail"] or "").replace(sys.prefix, ".venv"),
        "judged": trial["verdict"] not in ("disturbed", "infra_error"),
    }


def _gains(attack: Attack, trial: Row, honest: float, exported: str) -> dict[str, bool]:
    """What it got. Each finalist stands alone beside the baseline, so each that finals confirm would have the crown
    without the others."""
    latency = trial["speedup"] is not None and not trial["revoked"]
    table = json.loads(exported).get("table") if exported.startswith("{") else None
    used = {each.get("use") for each in table["entries"]} if table else set()
    served = [each["variant"]["parameters"] for each in table["variants"] if each["artifact"] in used] if table else []
    return {
        "latency": latency,
        "paid": bool(latency and trial["speedup"] > PAID * honest),
        "crown": bool(latency and trial["confirmed"] and trial["confirmed_low"] > 1),
        "export": latency and any(fits(attack, each) for each in served),
    }


def shares(rows: Sequence[Row]) -> dict[str, Any]:
    """Of those judged the share with each gain."""
    judged = [each for each in rows if each["judged"]]
    found = {}
    for gain in GAINS:
        count = sum(each[gain] for each in judged)
        low, high = holds.share_interval(count, len(judged))
        found[gain] = {"count": count, "of": len(judged), "low": low, "high": high}
    return found


def wanted(device: Backend, only: Sequence[str]) -> list[Group]:
    """The groups, with the attacks that are asked for by name."""
    found = []
    for group in groups(device):
        attacks = tuple(
            each
            for each in group.attacks
            if not only or {group.name, each.name, f"{group.name}/{each.name}"}.intersection(only)
        )
        if attacks:
            found.append(group._replace(attacks=attacks))
    pairs = [(group.name, each.name) for group in found for each in group.attacks]
    names = {text for group, name in pairs for text in (group, name, f"{group}/{name}")}
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
    before = [json.loads(options.json.read_text())] if options.json and options.json.exists() else []
    rows = {(each["group"], each["name"]): each for document in before for each in document["rows"]}
    made = [each for document in before for each in document.get("commands") or [document["command"]]]
    commands = list(dict.fromkeys([*made, command_line()]))
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
                    whole = merged([*before, document(list(rows.values()), options.device, commands)])
                    options.json.write_text(json.dumps(whole, indent=1) + "\n")
                print(f"{group.name} {each['name']}: {each['verdict']} {each['code']}: {', '.join(gains)}", flush=True)
            print(f"{group.name}: {time.monotonic() - started:.0f} s", flush=True)
    whole = document(list(rows.values()), options.device, commands)
    for gain, share in whole["shares"].items():
        print(f"{gain}: {share['count']} of {share['of']}, {share['low']:.1%} to {share['high']:.1%}")
    if options.hold:
        holds.require(unmet(whole))


def merged(documents: Sequence[Row]) -> Row:
    """One document of several; the last row of an attack counts."""
    rows = {(each["group"], each["name"]): each for document in documents for each in document["rows"]}
    around = [document["environment"] for document in documents]
    environment = {name: named(each.get(name, "") for each in around) for each in around for name in each}
    device = named(document["device"] for document in documents)
    return {**documents[-1], "device": device, "environment": environment, **summed(list(rows.values()))}


def named(texts: Iterable[str]) -> str:
    """What several documents say of one thing, each once."""
    return ", ".join(dict.fromkeys(part for text in texts for part in text.split(", ") if part))


def unmet(document: Row) -> list[str]:
    """What does not hold of it."""
    got = [f"{each['name']} got {gain}" for each in document["rows"] for gain in GAINS[1:] if each[gain]]
    enough = document["shares"]["latency"]["of"] >= LEAST
    return got + ([] if enough else [f"fewer than {LEAST} attacks were judged"])


def document(rows: list[Row], kind: str, commands: list[str]) -> Row:
    """What is kept."""
    about = measured_on(kind, threads=1 if kind == "cpu" else None)
    return {**about, "command": commands[0], "commands": commands, **summed(rows)}


def summed(rows: list[Row]) -> Row:
    """The rows, and what they come to."""
    endings = Counter(each["code"] or each["verdict"] for each in rows if each["judged"])
    return {"shares": shares(rows), "endings": endings, "rows": rows}


if __name__ == "__main__":
    main()
