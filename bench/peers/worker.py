"""The peers' side of scripts/bench: worker.py --threads N --exchange FOLDER times rows on request.

Each request is one line, each reply one line of JSON (the protocol of bench/server.cpp):
  hello               {"versions": {name: version}}
  prepare ROW         {"variant": name, "variants": {name: measurement}}: the implementation that the peer runs. Inputs are
                      read from the exchange folder
  publish             {}; one call's results are written there
  run theirs CALLS    {"wall": seconds, "cpu": seconds} for all calls after an untimed one, or {"value": v}
A row "<family>.<what>/<peer>" is made by a function of <family>.py beside this file, registered with peer.row(name).
"""

import argparse
import importlib
import json
import os
import resource
import sys
import time
import warnings

import peer


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle(run, calls):
    """Runs until a call allocates no new memory from the system. malloc reuses freed memory, but may need a few calls before
    the results of one call fit into the memory of the previous one."""
    for _ in range(calls):
        before = page_faults()
        run()
        if page_faults() - before < 16:
            return


def measure(side, calls):
    if side.value is not None:
        return {"value": side.value()}
    settle(side.run, 2)
    run, wall, cpu = side.run, time.perf_counter(), time.process_time()
    for _ in range(calls):
        run()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


class Worker:
    def __init__(self, settings):
        self.settings, self.side = settings, None

    def hello(self):
        return {"versions": peer.versions()}

    def prepare(self, name):
        importlib.import_module(name.split(".")[0])
        if name not in peer.ROWS:
            raise LookupError(f"bench/peers has no row '{name}'")
        self.side = peer.ROWS[name](self.settings)
        if self.side.value is None:
            settle(self.side.run, 10)
        return {"variant": self.side.variant, "variants": self.side.variants}

    def publish(self):
        for name, values in self.side.results().items():
            peer.write_array(self.settings.exchange, name, values)
        return {}

    def run(self, _side, calls):
        return measure(self.side, int(calls))


def answer(worker, request):
    verb, *words = request.split()
    try:
        return getattr(worker, verb)(*words)
    except Exception as error:  # the driver prints it and continues with the next row
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exchange", required=True)
    settings = parser.parse_args()
    # Libraries print: only replies may reach the driver.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    worker = Worker(settings)
    for request in sys.stdin:
        print(json.dumps(answer(worker, request)), file=replies, flush=True)


main()
