import sys, time; sys.path.insert(0,"/work/main")
from pathlib import Path
from autotuner.tuning import device_lock
device_lock._address=lambda name: f"\0review-experiment/{name}"      # not the real lock: nobody is disturbed
from autotuner.store import Store, sweeps, device_health
from autotuner.sweeps import queue, worker, health
from autotuner.sweeps.sweep_run import WorkClock, SweepRun
from autotuner.tuning.workbench import load_space
from autotuner.tuning.calm import Waiting
p="/tmp/rv/busy.db"
for s in ("","-wal","-shm"): Path(p+s).unlink(missing_ok=True)
st=Store.open(p)
for n in (1,2): queue.submit(st, queue.request_for([load_space("sdpa_cpu")], patience_minutes=0.03))
serves=worker.served("cpu")
bench=serves.bench(load_space("sdpa_cpu"))
locks=[device_lock._bound(n) for n in bench.chosen.locks]; print(bench.chosen.locks, all(locks))
w=worker.Worker(st, serves, lambda l: print("  worker:", l[:150]), None)
print(w.run(idle_exit=True))
for each in sweeps.every(st): print(each.id, each.state, "spent_s", round(each.spent_s,1), each.detail[:80])
print("probe:", health.probe(st, load_space("sdpa_cpu"), (), serves.bench, lambda: None))
c=WorkClock(0.0); time.sleep(1.5); c.hear(Waiting(detail="the device is timed by another", since_s=1.5)); print("clock after 1.5 s of waiting for a device:", round(c.spent_s,2))
