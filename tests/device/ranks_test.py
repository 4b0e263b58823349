"""Ranks that have a GPU each: gradients are summed where they lie, by NCCL, and the checkpoint has the bytes of one process."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli", "lib"))
from command import DIGITS, TINY  # noqa: E402
from launch import digest, expect_error, on, skip_without_mpi  # noqa: E402

skip_without_mpi()
STEPS = ["--data", DIGITS, "--batch", "96", "--micro-batch", "32", "--epochs", "1", "--seed", "1", "--device", "cuda"]
GPUS = {"FAKEQUANT_SIMULATED_GPUS": "3"}

digests = {}
for ranks in (1, 2, 3):
    done = on(ranks, "train", *TINY, *STEPS, "-o", f"{ranks}.h5", variables=GPUS)
    printed = done.stdout + done.stderr
    assert (f"{ranks} GPUs sum by NCCL" in printed) == (ranks > 1) and "by way of the host" not in printed, printed
    digests[ranks] = digest(f"{ranks}.h5")
assert len(set(digests.values())) == 1, digests

lost = on(2, "train", *TINY, *STEPS, "-o", "lost.h5", status=None, variables={**GPUS, "FAKEQUANT_SIMULATED_NCCL_ERROR": "1"})
assert lost.returncode != 0 and "ncclAllReduce failed: system" in lost.stderr, lost.stderr

expect_error(3, "3 processes on this machine have 2 GPUs. Start at most one for each", "train", *TINY, *STEPS, "-o", "no.h5",
        variables={"FAKEQUANT_SIMULATED_GPUS": "2"})
