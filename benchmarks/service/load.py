"""What the server bears: many readers at once, and clients that never end what they begin to say.

    python -m benchmarks.service.load [--trials 10000] [--json docs/results/service_load.json] [--hold]

A study is made up (benchmarks/service/made_up.py), and two sweeps are in the queue. CLIENTS threads of another process
ask for one address as fast as they are answered, over connections that stay open. Then many connections send half a
head and nothing more, and others half a body. With --hold it fails where the leaderboard has fewer than LEAST answers a
second, the list of two sweeps is larger than LARGEST bytes, or a half-sent request is held longer than HELD_S.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import socket
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from autotuner.jobs import queue
from autotuner.store import Store
from autotuner.tuning.workbench import load_space
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.service.made_up import PROBLEMS, SPACE, spread_times, write
from tests.helpers.browser import served

CLIENTS, SECONDS = 20, 5.0
HEADS, BODIES = 300, 150
LEAST, LARGEST, HELD_S = 100.0, 5 * 1024, 25.0
TOKEN = "a-token-of-the-benchmark"
ADDRESSES = {
    "leaderboard": "/api/v1/studies/{study}/leaderboard",
    "study": "/api/v1/studies/{study}",
    "trials": "/api/v1/studies/{study}/trials",
    "sweeps": "/api/v1/sweeps",
    "studies": "/api/v1/studies",
    "overview": "/studies/{study}",
}


def rate(port: int, path: str) -> float:
    """Answers a second to all clients."""

    def asks(_: int) -> int:
        client, count = http.client.HTTPConnection("localhost", port), 0
        while time.monotonic() < until:
            client.request("GET", path)
            answer = client.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            count += 1
        return count

    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(asks, range(CLIENTS))) / SECONDS


def size(port: int, path: str, *, packed: bool = False) -> int:
    """Bytes of an answer."""
    client = http.client.HTTPConnection("localhost", port)
    client.request("GET", path, headers={"Accept-Encoding": "gzip"} if packed else {})
    answer = client.getresponse()
    body = answer.read()
    if packed:
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(body)
    return len(body)


def held_s(port: int, sent: str, count: int) -> float:
    """Seconds until the last of so many connections is answered or closed that have sent that and nothing more."""
    began = time.monotonic()
    waiting = [socket.create_connection(("localhost", port)) for _ in range(count)]
    for each in waiting:
        each.sendall(sent.encode())
    for each in waiting:
        each.settimeout(120)
        try:
            while each.recv(4096):
                pass
        except ConnectionError:
            pass
        each.close()
    return time.monotonic() - began


def measured(path: Path, study: str) -> dict[str, Any]:
    token = path.parent / "token"
    token.write_text(TOKEN)
    with served(path, "--token-file", str(token)) as server:
        port = int(server.url.rsplit(":", 1)[1].strip("/"))
        rates: dict[str, float] = {}
        with ProcessPoolExecutor(1, get_context("spawn")) as others:
            for name, address in ADDRESSES.items():
                others.submit(size, port, address.format(study=study)).result()
                rates[name] = round(others.submit(rate, port, address.format(study=study)).result(), 1)
        head = f"GET /api/v1/health HTTP/1.1\r\nHost: localhost:{port}\r\n"
        body = f"POST /api/v1/sweeps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        return {
            "a_second": rates,
            "sweeps_bytes": size(port, ADDRESSES["sweeps"]),
            "overview_packed_bytes": size(port, ADDRESSES["overview"].format(study=study), packed=True),
            "half_a_head_s": round(held_s(port, head, HEADS), 1),
            "half_a_body_s": round(held_s(port, f"{body}Content-Length: 100\r\n\r\n{{", BODIES), 1),
        }


def unmet(found: dict[str, Any]) -> list[str]:
    """What does not hold."""
    said = [(found["a_second"]["leaderboard"] < LEAST, "the leaderboard has too few answers a second")]
    said += [(found["sweeps_bytes"] > LARGEST, "the list of two sweeps is too large")]
    said += [(found[f"half_a_{part}_s"] > HELD_S, f"half a {part} is held for too long") for part in ("head", "body")]
    return [words for fails, words in said if fails]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.load", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-load-") as folder:
        path = Path(folder) / "studies.db"
        with Store.open(str(path)) as store:
            study = write(store, options.trials)
            for problem in PROBLEMS[:2]:
                queue.submit(store, queue.request_for(load_space(SPACE, problems=[problem])))
        spread_times(path, study)
        found = {
            "trials": options.trials,
            "clients": CLIENTS,
            "cpus": os.cpu_count(),
            "load_before": os.getloadavg()[0],
        }
        found |= measured(path, study)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(found))


if __name__ == "__main__":
    main()
