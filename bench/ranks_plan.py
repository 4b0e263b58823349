"""Predicts the time of a step on many processes from the time of one micro-batch on one process, for ring and tree sums.

    python3 bench/ranks_plan.py --parameters 270000 --micro-batch-ms 38 --micro-batches 32 --network 100Gb/s --latency-us 5 \\
        --ranks 1,2,4,8,16,32

A step consists of the micro-batches of the busiest rank, the sums, and the optimizer. Gradients are summed in buckets of 131,072
numbers (or 32,768 per rank, if that is more). For each bucket the ranks first agree on exponents (8 bytes per tensor) and then
exchange the sums: 8 bytes per element in 64-bit fixed point, 4 as floats, 2 as bf16. Two more messages carry the loss and the
statistics. With --overlap, the last backward pass (two thirds of a micro-batch) hides the transfer of all buckets except the last.
A ring (used for more than 4,096 numbers per rank) moves 2 (n - 1) / n of the bytes through each link in 2 (n - 1) messages. A tree
moves all bytes in 2 ceil(log2 n) steps (Thakur, Rabenseifner and Gropp 2005). --fixed-ns: cost per element and rank of converting to
fixed point and back. The plan is an upper bound of the speed for a dedicated network and a lower bound of the time for a shared one."""

import argparse
import math

BYTES = {"exact": 8, "fp32": 4, "bf16": 2}
UNITS = {"Gb/s": 1e9 / 8, "Mb/s": 1e6 / 8, "GB/s": 1e9, "MB/s": 1e6}


def bytes_a_second(text):
    for unit, size in UNITS.items():
        if text.endswith(unit):
            return float(text[:-len(unit)]) * size
    raise argparse.ArgumentTypeError(f"'{text}' is no rate: write it as 100Gb/s, 12.5GB/s, ..")


def ring(ranks, size, rate, latency):
    return 2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * size / rate if ranks > 1 else 0


def tree(ranks, size, rate, latency):
    return 2 * math.ceil(math.log2(ranks)) * (latency + size / rate)


def bucket(ranks):
    """As train/ranks/detail/gradient_buckets.cpp."""
    return max(1 << 17, ranks << 15)


def step_seconds(ranks, reduction, options):
    own = math.ceil(options.micro_batches / ranks)
    shape = {"ring": ring, "tree": tree}[reduction]
    latency = options.latency_us * 1e-6
    buckets = math.ceil(options.parameters / bucket(ranks))
    reduced = buckets * shape(ranks, BYTES[options.reduce] * options.parameters / buckets, options.network, latency)
    if options.reduce == "exact":
        reduced += buckets * tree(ranks, 8 * options.tensors / buckets, options.network, latency)
        reduced += options.parameters * options.fixed_ns * 1e-9 * own
    shared = max(1, ranks / options.cores) if options.cores else 1
    computed = own * options.micro_batch_ms * 1e-3 * shared
    if options.overlap:
        reduced = max(reduced / buckets, reduced - options.micro_batch_ms * 1e-3 * 2 / 3)
    broadcast_seconds = 2 * tree(ranks, 24 * options.micro_batches, options.network, latency)
    return computed + reduced + broadcast_seconds + options.optimizer_ms * 1e-3


def read_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--parameters", type=int, required=True, help="of the network")
    parser.add_argument("--tensors", type=int, default=100, help="that they are in")
    parser.add_argument("--micro-batch-ms", type=float, required=True, help="forward and backward of one micro-batch on one rank")
    parser.add_argument("--optimizer-ms", type=float, default=0.0, help="of a step")
    parser.add_argument("--micro-batches", type=int, required=True, help="of a step: batch / micro-batch")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("--network", type=bytes_a_second, default="100Gb/s", help="a link between two ranks")
    parser.add_argument("--latency-us", type=float, default=5.0, help="of a message")
    parser.add_argument("--reduce", choices=BYTES, default="exact", help="what goes between ranks")
    parser.add_argument("--fixed-ns", type=float, default=1.0, help="an element and micro-batch, to fixed point and back")
    parser.add_argument("--cores", type=int, default=0, help="that all ranks share; 0: each has its own")
    parser.add_argument("--overlap", action="store_true", help="sums begin during the backward pass, as they do on CPUs")
    options = parser.parse_args(arguments)
    for name in ("parameters", "tensors", "micro_batches", "micro_batch_ms", "network"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}: use more than 0")
    for ranks in options.ranks:
        if not 1 <= ranks <= options.micro_batches:
            parser.error(f"{ranks} ranks for {options.micro_batches} micro-batches: use 1 to {options.micro_batches}")
    return options


def main():
    options = read_options()
    alone = step_seconds(1, "ring", options)
    print(f"{'ranks':>6} {'ring, ms':>10} {'a rank':>7} {'tree, ms':>10} {'a rank':>7}")
    for ranks in options.ranks:
        line = f"{ranks:6}"
        for reduction in ("ring", "tree"):
            seconds = step_seconds(ranks, reduction, options)
            line += f" {seconds * 1e3:10.2f} {alone / seconds / ranks:7.2f}"
        print(line)


if __name__ == "__main__":
    main()
