"""Ranks on two hosts: network namespaces of this machine, with a network between them that is slow, or breaks."""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from command import COMMAND, DIGITS, environment, run
from hosts import Hosts, why_none
from launch import digest, skip_without_mpi

# 300,000 parameters: sums over ranks begin during the backward pass.
TRAIN = ["train", "--model", "mlp", "--model-options", '{"hidden": [400, 400, 200]}', "--data", DIGITS, "--batch", "64",
         "--micro-batch", "16", "--seed", "1", "--threads", "1"]


def start(hosts, *arguments):
    with open("said", "w") as printed:
        return hosts.start(COMMAND, *arguments, environment=environment(1), stdout=printed, stderr=printed)


def read_log():
    with open("said") as file:
        return file.read()


def test_same_bytes():
    run(*TRAIN, "--epochs", "1", "-o", "one.h5", threads=1)
    with Hosts("1gbit") as hosts:
        status = start(hosts, *TRAIN, "--epochs", "1", "-o", "two.h5").wait(timeout=240)
    assert status == 0, read_log()
    assert digest("one.h5") == digest("two.h5")


def checkpoint_ranks(checkpoint):
    """Process ids of a run on this machine, in all network namespaces."""
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if line.split()[1] == COMMAND and line.endswith(checkpoint)]


def wait_until(what, done, seconds):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.01)


def test_cut_network():
    """Both sides end soon, the one that is seen says who did not come, and the last checkpoint is whole."""
    with Hosts("1gbit") as hosts:
        start(hosts, *TRAIN, "--epochs", "5000", "--set", "save_every=5", "--set", "rank_timeout=3", "-o", "cut.h5")
        wait_until("a checkpoint", lambda: os.path.exists("cut.h5"), 60)
        hosts.cut()
        wait_until("the end of both ranks", lambda: not checkpoint_ranks("cut.h5"), 40)
    printed = re.findall("fakequant: .*", read_log())
    assert len(printed) == 1 and re.search(r"rank 0 on \S+ waited 3 s for rank 1 on \S+: it hangs", printed[0]), read_log()
    run("inspect", "cut.h5")


def main():
    if why := why_none():
        print(f"SKIPPED: {why}")
        raise SystemExit(77)
    skip_without_mpi()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: ok")


main()
