"""Measures the cost of ranks: images per second of two ranks against one, and the exact gradient sum against MPI's sum.

    cmake --build build/release --target fakequant_cli fakequant_bench_ranks && python3 bench/ranks.py

`ranks.resnet20.2/1` trains resnet20 on random images of 3x32x32 in batches of 128, micro-batches of 32, one thread per rank. Runs are
interleaved in pairs. `ranks.reduce/mpi_doubles` is the time of MPI_Allreduce of doubles divided by the time of the exact sum of the
same number of gradients, for resnet20 and for 4 million gradients. `alone` is the speed of two independent runs at once relative to
one run: the upper bound for two ranks. The machine must be idle and have one core per rank."""

import argparse
import array
import concurrent.futures
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile

LAUNCH = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
          "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
IMAGES = 1024


def write_npy(path, values, shape, dtype):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def run(ranks, *line):
    launched = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launched, *line], capture_output=True, text=True, env=dict(os.environ, **LAUNCH))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}: {done.stderr}")
    return done.stdout


def make_data(command):
    draw = random.Random(1)
    write_npy("x.npy", array.array("f", [draw.gauss(0, 1) for _ in range(IMAGES * 3 * 32 * 32)]), (IMAGES, 3, 32, 32), "<f4")
    write_npy("y.npy", array.array("q", [draw.randrange(10) for _ in range(IMAGES)]), (IMAGES,), "<i8")
    run(1, command, "dataset", "from-npy", "x.npy", "--labels", "y.npy", "--test", "0.125", "-o", "data.h5")


def milliseconds_a_step(command, ranks, output="network.h5"):
    said = run(ranks, command, "train", "--model", "resnet20", "--data", "data.h5", "--batch", "128", "--micro-batch", "32",
               "--threads", "1", "--epochs", "1", "--seed", "1", "-o", output, "--json")
    return json.loads(next(line for line in said.splitlines() if '"result"' in line))["ms_per_step"]


def two_at_once(command):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return statistics.mean(pool.map(lambda output: milliseconds_a_step(command, 1, output), ("a.h5", "b.h5")))


def print_ratios(name, ratios):
    print(f"{name} {statistics.median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f}, {len(ratios)} pairs)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--build", default="build/release")
    options = parser.parse_args()
    command, sums = (os.path.abspath(os.path.join(options.build, "bin", name)) for name in ("fakequant", "fakequant_bench_ranks"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_data(command)
        ratios, alone = [], []
        for pair in range(options.pairs):
            steps = {ranks: milliseconds_a_step(command, ranks) for ranks in ((2, 1) if pair % 2 == 0 else (1, 2))}
            ratios.append(steps[1] / steps[2] / 2)
            alone.append(steps[1] / two_at_once(command))
        print_ratios("ranks.resnet20.2/1", ratios)
        print_ratios("alone", alone)
        for elements in ("270000", "4000000"):
            print(run(2, sums, elements), end="")


if __name__ == "__main__":
    main()
