"""Times steps of ranks over a network with limited rate and latency, and compares them with bench/ranks_plan.py.

    cmake --build build/release --target fakequant_cli && python3 bench/ranks_network.py        (root, iproute2, Open MPI)

Each rank has a network namespace. This process is the switch between them: it limits the rate (tc tbf) and delays each frame by
the latency. The model is an mlp of 300,000 parameters on data/digits.h5, batches of 64 in micro-batches of 16, one thread per
rank. The plan uses the measured time of one process and assumes one core per rank; --cores gives the number of cores if there
are fewer."""

import argparse
import collections
import fcntl
import json
import os
import selectors
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", "cli", "lib"), os.path.join(ROOT, "bench")]
os.environ.setdefault("FAKEQUANT_SOURCE_DIR", ROOT)
os.environ.setdefault("FAKEQUANT", os.path.join(ROOT, "build", "release", "bin", "fakequant"))
import ranks_plan  # noqa: E402
from command import COMMAND, DIGITS, environment, run  # noqa: E402
from hosts import Hosts, why_none  # noqa: E402

HIDDEN = [400, 400, 200]
PARAMETERS = sum(a * b + b for a, b in zip([64, *HIDDEN], [*HIDDEN, 10]))
TRAIN = ["train", "--model", "mlp", "--model-options", json.dumps({"hidden": HIDDEN}), "--data", DIGITS, "--batch", "64",
         "--micro-batch", "16", "--seed", "1", "--threads", "1", "--epochs", "2", "--json"]
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME = 60000  # few frames: a switch in Python takes its time for each


class DistantHosts(Hosts):
    """Hosts whose frames are delayed by `seconds`: one tap per host, and a thread that delivers due frames."""

    def __init__(self, rate, count, seconds):
        super().__init__(rate, count)
        self.seconds, self.taps, self.ended = seconds, [], False

    def connect(self):
        for n, name in enumerate(self.names):
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", f"{self.bridge}t{n}".encode(), IFF_TAP | IFF_NO_PI))
            self.ip("link", "set", f"{self.bridge}t{n}", "address", f"02:00:00:00:00:{n:02x}", "mtu", str(FRAME), "netns", name)
            self.ip("-n", name, "link", "set", f"{self.bridge}t{n}", "name", "eth0")
            self.taps.append(tap)
        self.switch = threading.Thread(target=self.forward_frames, daemon=True)
        self.switch.start()

    def disconnect(self):
        self.ended = True
        self.switch.join()
        for tap in self.taps:
            os.close(tap)

    def forward_frames(self):
        ready, waiting = selectors.DefaultSelector(), collections.deque()
        for n, tap in enumerate(self.taps):
            ready.register(tap, selectors.EVENT_READ, n)
        while not self.ended:
            until = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            for key, _ in ready.select(until):
                try:
                    frame = os.read(key.fd, FRAME + 64)
                except OSError:  # not up yet
                    time.sleep(0.001)
                    continue
                to = [frame[5]] if frame[0] == 2 else [n for n in range(len(self.taps)) if n != key.data]
                waiting.append((time.monotonic() + self.seconds, frame, to))
            while waiting and waiting[0][0] <= time.monotonic():
                _, frame, to = waiting.popleft()
                for n in to:
                    try:
                        os.write(self.taps[n], frame)
                    except OSError:  # a switch drops frames that do not fit its queue
                        pass


def step_time(said):
    return json.loads(next(line for line in said.splitlines() if '"result"' in line))["ms_per_step"]


def run_hosts(hosts):
    process = hosts.start(COMMAND, *TRAIN, "-o", "n.h5", environment=environment(1), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    said, errors = process.communicate(timeout=600)
    if process.returncode != 0:
        raise SystemExit(errors)
    return step_time(said)


def planned(alone, ranks, rate, latency, cores):
    options = ranks_plan.read_options(
        ["--parameters", str(PARAMETERS), "--tensors", "8", "--micro-batches", "4", "--micro-batch-ms", str(alone / 4), "--network", rate,
         "--latency-us", str(latency), "--ranks", str(ranks), "--cores", str(cores), "--overlap"])
    return [1e3 * ranks_plan.step_seconds(ranks, shape, options) for shape in ("ring", "tree")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["1Gb/s:0.2", "1Gb/s:2", "100Mb/s:0.2", "100Mb/s:2"], help="rate and milliseconds")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if why := why_none():
        raise SystemExit(why)
    print(f"{'network':>14} {'ranks':>5} {'one, ms':>8} {'step, ms':>9} {'ring':>8} {'tree':>8}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for network in options.networks:
            rate, milliseconds = network.split(":")
            for ranks in options.ranks:
                with DistantHosts(rate.replace("b/s", "bit").lower(), ranks, float(milliseconds) * 1e-3) as hosts:
                    pairs = [(step_time(run(*TRAIN, "-o", "1.h5", threads=1).stdout), run_hosts(hosts)) for _ in range(options.rounds)]
                alone, step = map(statistics.median, zip(*pairs))
                ring, tree = planned(alone, ranks, rate, float(milliseconds) * 1e3, options.cores)
                print(f"{network:>14} {ranks:5} {alone:8.2f} {step:9.2f} {ring:8.2f} {tree:8.2f}", flush=True)


if __name__ == "__main__":
    main()
