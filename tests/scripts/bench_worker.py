"""bench_worker.py LOG SIDE [options]: replaces both programs of scripts/bench. Its times are constants, and LOG gets a
line for every timed batch. Row 'fake.different' fails its comparison, 'fake.crash' ends the program."""

import json
import os
import sys

LOG, SIDE = sys.argv[1:3]
ROWS = [{"name": name, "unit": "ms", "clock": "cpu", "python": name.endswith("/torch")}
        for name in ("fake.equal.small/memcpy", "fake.equal.small/torch", "fake.different.small/torch", "fake.crash/torch",
                     "fake.value/memcpy")]
SECONDS = {"ours": 0.02, "theirs": 0.04}
row = ""


def run(side, calls):
    with open(LOG, "a") as file:
        print(side, file=file)
    if row.startswith("fake.value"):
        return {"value": 3.0 if side == "ours" else 4.0}
    return {"wall": SECONDS[side] * calls, "cpu": SECONDS[side] * calls}


for request in sys.stdin:
    verb, *words = request.split()
    reply = {}
    if verb == "hello":
        reply = {"versions": {SIDE: "1", "threads": os.environ["OMP_NUM_THREADS"]}}
    elif verb == "rows":
        reply = {"rows": ROWS}
    elif verb == "prepare":
        row, reply = words[0], {"units_per_second": 1000.0, "checked": True}
        if SIDE == "peer":
            reply = {"variant": "compiled", "variants": {"eager": 50.0, "compiled": 40.0}}
    elif verb == "check":
        reply = {"difference": "y[3]: ours 1, expected 2" if "different" in row else ""}
    elif verb == "run":
        if "crash" in row and SIDE == "peer":
            print("out of memory", file=sys.stderr)
            sys.exit(3)
        reply = run(words[0], int(words[1]))
    print(json.dumps(reply), flush=True)
