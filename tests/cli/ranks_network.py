"""Ranks on two hosts: network namespaces of this machine, with a network between them that is slow, or breaks."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from command import COMMAND, DIGITS, environment, run
from launch import LAUNCH, digest, skip_without_mpi

# 300,000 parameters: sums over ranks begin during the backward pass.
TRAIN = ["train", "--model", "mlp", "--model-options", '{"hidden": [400, 400, 200]}', "--data", DIGITS, "--batch", "64",
         "--micro-batch", "16", "--seed", "1", "--threads", "1"]
NETWORK = f"10.{os.getpid() % 200 + 20}.7"


class Hosts:
    """Two namespaces on a bridge; names and addresses are of this process, so that tests do not meet."""

    def __init__(self, rate):
        self.names = [f"fq{os.getpid()}n{n}" for n in (1, 2)]
        self.bridge = f"fq{os.getpid()}"
        self.rate = rate

    def __enter__(self):
        self.ip("link", "add", self.bridge, "type", "bridge")
        self.ip("link", "set", self.bridge, "up")
        for n, name in enumerate(self.names, 1):
            self.ip("netns", "add", name)
            self.ip("link", "add", f"{self.bridge}v{n}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("link", "set", f"{self.bridge}v{n}", "master", self.bridge, "up")
            self.ip("-n", name, "addr", "add", f"{NETWORK}.{n}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                self.ip("-n", name, "link", "set", link, "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "256kb",
                            "latency", "50ms"], check=True, capture_output=True)
        with open("agent", "w") as file:
            file.write(f'#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "fq{os.getpid()}n${{host##*.}}" sh -c "$*"\n')
        os.chmod("agent", 0o755)
        return self

    def __exit__(self, *_):
        for n, name in enumerate(self.names, 1):
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in map(int, pids):  # a launcher waits for a host that it does not reach
                os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "link", "del", f"{self.bridge}v{n}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def cut(self):
        self.ip("link", "set", f"{self.bridge}v2", "down")

    def start(self, *arguments):
        line = ["ip", "netns", "exec", self.names[0], "mpiexec", "--host", f"{NETWORK}.1,{NETWORK}.2", "-n", "2",
                "--mca", "plm_rsh_agent", os.path.abspath("agent"), "--mca", "btl", "tcp,self",
                "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24",
                "-x", "OMP_WAIT_POLICY", "-x", "OMP_NUM_THREADS", COMMAND, *arguments]
        with open("said", "w") as said:
            return subprocess.Popen(line, stdout=said, stderr=said, env=dict(environment(1), **LAUNCH))


def what_was_said():
    with open("said") as file:
        return file.read()


def test_same_bytes():
    run(*TRAIN, "--epochs", "1", "-o", "one.h5", threads=1)
    with Hosts("1gbit") as hosts:
        status = hosts.start(*TRAIN, "--epochs", "1", "-o", "two.h5").wait(timeout=240)
    assert status == 0, what_was_said()
    assert digest("one.h5") == digest("two.h5")


def ranks_of(checkpoint):
    """The processes of a run: of this machine, in whatever namespace."""
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if line.split()[1] == COMMAND and line.endswith(checkpoint)]


def wait_for(what, done, seconds):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.01)


def test_cut_network():
    """Both sides end soon, the one that is seen says who did not come, and the last checkpoint is whole."""
    with Hosts("1gbit") as hosts:
        hosts.start(*TRAIN, "--epochs", "5000", "--save-every", "5", "--rank-timeout", "3", "-o", "cut.h5")
        wait_for("a checkpoint", lambda: os.path.exists("cut.h5"), 60)
        hosts.cut()
        wait_for("the end of both ranks", lambda: not ranks_of("cut.h5"), 40)
    said = re.findall("fakequant: .*", what_was_said())
    assert len(said) == 1 and re.search(r"rank 0 on \S+ waited 3 s for rank 1 on \S+: it hangs", said[0]), what_was_said()
    run("inspect", "cut.h5")


def main():
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))):
        print("SKIPPED: network namespaces need root and iproute2")
        raise SystemExit(77)
    if subprocess.run(["ip", "netns", "add", f"fq{os.getpid()}t"], capture_output=True).returncode != 0:
        print("SKIPPED: this machine allows no network namespaces")
        raise SystemExit(77)
    subprocess.run(["ip", "netns", "del", f"fq{os.getpid()}t"], check=True)
    skip_without_mpi()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: ok")


main()
