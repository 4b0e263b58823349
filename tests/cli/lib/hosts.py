"""Hosts on one machine: network namespaces, with a network between them that is slow, or breaks."""

import os
import shutil
import signal
import subprocess

from launch import LAUNCH


class Hosts:
    """`count` namespaces on a bridge, each with that rate to it ("1gbit"); names and addresses are of this process, so that
    several do not meet."""

    def __init__(self, rate, count=2):
        self.names = [f"fq{os.getpid()}n{n}" for n in range(1, count + 1)]
        self.bridge = f"fq{os.getpid()}"
        self.network = f"10.{os.getpid() % 200 + 20}.7"
        self.rate = rate

    def __enter__(self):
        for n, name in enumerate(self.names, 1):
            self.ip("netns", "add", name)
        self.connect()
        for n, name in enumerate(self.names, 1):
            self.ip("-n", name, "addr", "add", f"{self.network}.{n}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                self.ip("-n", name, "link", "set", link, "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "256kb",
                            "latency", "50ms"], check=True, capture_output=True)
        with open("agent", "w") as file:
            file.write(f'#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "fq{os.getpid()}n${{host##*.}}" sh -c "$*"\n')
        os.chmod("agent", 0o755)
        return self

    def __exit__(self, *_):
        for name in self.names:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in map(int, pids):  # a launcher waits for a host that it does not reach
                os.kill(pid, signal.SIGKILL)
        self.disconnect()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def connect(self):
        """Gives each namespace its eth0."""
        self.ip("link", "add", self.bridge, "type", "bridge")
        self.ip("link", "set", self.bridge, "up")
        for n, name in enumerate(self.names, 1):
            self.ip("link", "add", f"{self.bridge}v{n}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("link", "set", f"{self.bridge}v{n}", "master", self.bridge, "up")

    def disconnect(self):
        for link in (*(f"{self.bridge}v{n}" for n in range(1, len(self.names) + 1)), self.bridge):
            subprocess.run(["ip", "link", "del", link], capture_output=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def cut(self):
        self.ip("link", "set", f"{self.bridge}v2", "down")

    def start(self, *line, environment, **options):
        """A process of that command line on each host."""
        hosts = ",".join(f"{self.network}.{n}" for n in range(1, len(self.names) + 1))
        whole = ["ip", "netns", "exec", self.names[0], "mpiexec", "--host", hosts, "-n", str(len(self.names)),
                 "--mca", "plm_rsh_agent", os.path.abspath("agent"), "--mca", "btl", "tcp,self",
                 "--mca", "btl_tcp_if_include", f"{self.network}.0/24", "--mca", "oob_tcp_if_include", f"{self.network}.0/24",
                 "-x", "OMP_WAIT_POLICY", "-x", "OMP_NUM_THREADS", *line]
        return subprocess.Popen(whole, env=dict(environment, **LAUNCH), **options)


def why_none():
    """Why this machine has no such hosts; empty where it has."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "mpiexec"))):
        return "network namespaces need root, iproute2 and Open MPI"
    name = f"fq{os.getpid()}t"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""
