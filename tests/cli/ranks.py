"""A run with any number of ranks has the bytes of one process. A killed run resumes with another number of ranks."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from command import COMMAND, DIGITS, TINY, environment, result, run
from launch import LAUNCH, MPIEXEC, digest, expect_error, launched, on, skip_without_mpi

DATA = ["--data", DIGITS, "--batch", "64", "--micro-batch", "16", "--seed", "1"]
FLOAT = ["train", *TINY, *DATA, "--epochs", "1"]


def same_bytes(name, *arguments, counts=(1, 2, 3, 4)):
    digests = {}
    for ranks in counts:
        on(ranks, *arguments, "-o", f"{name}_{ranks}.h5")
        digests[ranks] = digest(f"{name}_{ranks}.h5")
    assert len(set(digests.values())) == 1, f"{name}: {digests}"
    return f"{name}_{counts[0]}.h5"


def test_same_bytes():
    network = same_bytes("float", *FLOAT, "--val-fraction", "0.1", "--ema", "0.9", "--augment", "shift=1")
    fine_tuned = ["qat", network, *DATA, "--epochs", "1", "--preset"]
    same_bytes("learned", *fine_tuned, "int8", counts=(1, 3))
    same_bytes("running", *fine_tuned, "int8", "--set", "keep_bn=true", "--amax", "running", counts=(1, 2, 4))
    same_bytes("nvfp4", *fine_tuned, "nvfp4", counts=(1, 2))


def test_shared_optimizer():
    """The optimizer state is sharded over ranks; the file equals the file of one rank and resumes with another number of ranks."""
    flags = ["train", *TINY, *DATA, "--schedule", "constant", "--epochs", "2"]
    on(1, *flags, "-o", "kept.h5")
    for ranks in (2, 3):
        on(ranks, *flags, "--set", "shard_optimizer=true", "-o", f"sharded_{ranks}.h5")
        assert digest(f"sharded_{ranks}.h5") == digest("kept.h5"), ranks
    on(3, *flags[:-1], "1", "--set", "shard_optimizer=true", "-o", "goes_on.h5")
    on(2, *flags, "--set", "shard_optimizer=true", "-o", "goes_on.h5", "--resume")
    assert digest("goes_on.h5") == digest("kept.h5")


def test_sums_of_floats():
    """Ranks exchange fewer bytes, the loss is nearly the same, and the log reports the lost determinism."""
    reported = {}
    for reduce in ("exact", "fp32", "bf16"):
        done = on(2, *FLOAT, "--set", f"reduction={reduce}", "-o", f"{reduce}.h5", "--json")
        assert ("has other bits for another number" in done.stderr + done.stdout) == (reduce != "exact"), done.stderr
        reported[reduce] = json.loads(next(line for line in done.stdout.splitlines() if '"result"' in line))
    sent = [reported[reduce]["rank_bytes"] for reduce in ("exact", "fp32", "bf16")]
    assert sent[0] > 1.7 * sent[1] and sent[1] > 1.7 * sent[2], sent
    losses = [reported[reduce]["loss"] for reduce in reported]
    assert max(losses) - min(losses) < 0.01 * losses[0] and digest("fp32.h5") != digest("bf16.h5"), losses


def check_same_results(*arguments, output=None, counts=(1, 3)):
    """The report and files of the command do not depend on the number of ranks, except for times."""
    found = []
    for ranks in counts:
        written = ["-o", output] if output else []
        lines = on(ranks, *arguments, *written, "--json").stdout.splitlines()
        report = json.loads(next(line for line in lines if '"result"' in line))
        times = {key for key in report if "seconds" in key}
        changed = [line for line in lines if '"weight_algorithm"' in line]
        found.append(({key: report[key] for key in report if key not in times}, changed, output and digest(output)))
    assert all(other == found[0] for other in found), found
    return found[0][0]


def test_calibration_and_evaluation():
    on(1, *FLOAT, "-o", "network.h5")
    images = ["--data", DIGITS, "--batch", "40"]
    for preset in ("int8", "mxfp8"):
        check_same_results("calibrate", "network.h5", *images, "--preset", preset, output=f"calibrated_{preset}.h5", counts=(1, 2, 3))
    # By the method of two passes, by one that wants all batches in their order, and for more ranks than batches.
    for method, batch in (("two_pass_mse", "40"), ("histogram", "40"), ("max", "400")):
        check_same_results("calibrate", "network.h5", "--data", DIGITS, "--batch", batch, "--preset", "int8", "--method", method,
                     output="by_method.h5")
    check_same_results("inspect", "calibrated_int8.h5", "--calibration", *images)
    for command, more in (("evaluate", []), ("predict", ["-o", "said.h5"]), ("sensitivity", ["--report", "report.json"])):
        found = check_same_results(command, "calibrated_int8.h5", *images, *more)
        assert found.get("count", 1) > 0, found
    # A state written by one process for all ranks, then resumed.
    for ranks in (1, 2):
        for skip in ("0", "256"):
            on(ranks, "calibrate", "network.h5", *images, "--preset", "int8", "--method", "one_pass_mse", "--samples", "256", "--skip",
               skip, "--state", f"state_{ranks}.h5", "-o", f"of_states_{ranks}.h5")
    assert digest("of_states_1.h5") == digest("of_states_2.h5") and digest("state_1.h5") == digest("state_2.h5")
    check_same_results("sensitivity", "network.h5", *images, "--effective-bits", "6", output="planned.h5")


def test_algorithms_on_weights():
    """GPTQ and other algorithms divide batches and layers among ranks, also with more ranks than batches. All ranks report the same."""
    on(1, *FLOAT, "-o", "network.h5")
    for algorithm, counts in (("gptq", (1, 2, 3)), ("adaround", (1, 3)), ("awq_full", (1, 3)), ("bias_correction", (1, 2))):
        report = check_same_results("calibrate", "network.h5", "--data", DIGITS, "--batch", "300", "--samples", "500", "--preset", "w4a8",
                              "--algorithm", algorithm, output=f"{algorithm}.h5", counts=counts)
        assert report["quantizers"] > 0


def bytes_read(ranks, *arguments):
    """Bytes that each rank reads by read calls: a shell counts the bytes of its child process."""
    count = 'echo "read $(sed -n "s/rchar: //p" /proc/$$/io)" >&2'
    line = ["sh", "-c", shlex.join([COMMAND, *map(str, arguments)]) + f" || exit 1; {count}"]
    done = subprocess.run([MPIEXEC, "-n", str(ranks), *line], capture_output=True, text=True, timeout=120, env=dict(environment(1), **LAUNCH))
    assert done.returncode == 0, done.stderr
    found = [int(number) for number in re.findall(r"read (\d+)", done.stderr)]
    assert len(found) == ranks, done.stderr
    return found


def test_ranks_read_only_their_samples():
    """If the data's checksum covers only some samples (above 64 MiB of floats), an epoch reads each sample on one rank."""
    row, samples = 3 * 32 * 32, 8192
    for name, count in (("few.h5", 64), ("many.h5", samples)):
        with h5py.File(name, "w") as file:
            x = np.random.default_rng(1).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
            file["train/x"], file["train/y"] = x, (np.arange(count) % 10).astype(np.uint8)
            file["train/x"].attrs["scale"] = 1 / 255
    train = ["train", "--model", "mlp", "--model-options", '{"hidden": [8]}', "--batch", "64", "--micro-batch", "16", "--epochs", "1",
             "--threads", "1", "--data"]
    for ranks in (1, 2, 3):
        start = bytes_read(ranks, *train, "few.h5", "-o", "few_out.h5")
        read = [most - least for most, least in zip(bytes_read(ranks, *train, "many.h5", "-o", "out.h5"), start)]
        share = row * samples / ranks
        # A rank processes whole micro-batches of a step of four: one of three ranks has two. 64 samples identify the data.
        largest = share * (1.5 if ranks == 3 else 1) + (64 + 128) * row
        assert max(read) < largest and 0.98 * row * samples < sum(read) < row * samples + ranks * (64 + 128) * row, (ranks, read, share)
    calibrate = ["calibrate", "out.h5", "--preset", "int8", "--batch", "64", "--samples", "4096", "--threads", "1", "--data"]
    start = bytes_read(2, *calibrate, "few.h5", "-o", "few_int8.h5")
    read = [most - least for most, least in zip(bytes_read(2, *calibrate, "many.h5", "-o", "int8.h5"), start)]
    assert max(read) < 4096 * row / 2 + 300 * row, read


def test_one_report():
    done = on(3, *FLOAT, "-o", "told.h5", "--json")
    ends = [line for line in done.stdout.splitlines() if '"result"' in line]
    plain = on(2, *FLOAT, "-o", "plain.h5").stdout  # mpiexec's own terminal is not a user's
    assert "epoch 1" in plain and "\033" not in plain, plain
    assert len(ends) == 1 and '"ranks":3' in ends[0].replace(" ", ""), done.stdout
    alone = result(*FLOAT, "-o", "alone.h5", threads=1)
    assert alone["ranks"] == 1 and alone["rank_bytes"] == 0


def rank_processes(process):
    """The processes of the command below that one, in their order: right below, or below a proxy of MPICH."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True).stdout.splitlines()
    lines = [(int(pid), int(parent), args) for pid, parent, args in (line.split(None, 2) for line in listed)]

    def below(process):
        for pid, parent, args in lines:
            if parent == process:
                yield from [pid] if args.startswith(COMMAND) else below(pid)

    return sorted(below(process.pid))


def test_resumes_a_killed_run_elsewhere():
    flags = ["train", *TINY, *DATA, "--epochs", "8", "--set", "save_every=3"]
    on(1, *flags, "-o", "whole.h5")
    process = launched(3, *flags, "-o", "killed.h5")
    deadline = time.monotonic() + 60
    ranks = []
    while len(ranks) < 3 or not os.path.exists("killed.h5"):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        ranks = ranks if len(ranks) == 3 else rank_processes(process)
        time.sleep(0.01)
    os.kill(ranks[1], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    on(2, *flags, "-o", "killed.h5", "--resume")
    assert digest("killed.h5") == digest("whole.h5")


def test_sums_during_the_backward_pass():
    """In a network with several buckets, sums begin while other gradients are computed, with equal bits."""
    flags = ["train", "--model", "mlp", "--model-options", '{"hidden": [400, 400, 200]}', *DATA, "--epochs", "1"]
    on(1, *flags, "-o", "whole_mlp.h5")
    for _ in range(5):  # on a busy machine the thread of the sums may not get its turn within a step
        on(2, *flags, "--profile=trace.json", "-o", "mlp.h5", "--force")
        assert digest("mlp.h5") == digest("whole_mlp.h5")
        with open("trace.json") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        sums = [event for event in events if event["name"] == "sums over ranks"]
        products = [event for event in events if event["cat"] in ("dX", "dW")]
        over = [(a, b) for a in sums for b in products if a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]]
        if over:
            break
    assert over, f"{len(sums)} sums, none beside the backward pass"


def test_names_a_hanging_rank():
    process = launched(3, *FLOAT[:-1], "5000", "--set", "save_every=2", "--set", "rank_timeout=2", "-o", "hangs.h5")
    deadline = time.monotonic() + 60
    while not os.path.exists("hangs.h5"):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.01)
    stopped = rank_processes(process)[1]
    os.kill(stopped, signal.SIGSTOP)
    _, errors = process.communicate(timeout=60)
    printed = re.findall("fakequant: .*", errors)
    assert process.returncode != 0 and len(printed) == 1 and re.search(r"waited 2 s for rank 1 on \S+: it hangs", printed[0]), errors


def test_run_directories():
    """Only rank 0 writes: the directory equals the one of a single process and is resumed with another number of ranks."""
    flags = ["train", *TINY, *DATA, "--val-fraction", "0.1", "--set", "keep_epochs=2", "--epochs"]
    found = {}
    for ranks in (1, 2):
        folder = f"run_{ranks}"
        on(ranks, *flags, "1", "-o", folder + "/")
        on(3 if ranks == 2 else 1, "train", "--resume", folder, "--epochs", "2")
        with open(f"{folder}/metrics.jsonl") as file:
            lines = [json.loads(line) for line in file]
        reported = [[line["event"], *(line.get(key) for key in ("step", "epoch", "loss", "val_loss", "confusion"))] for line in lines]
        checkpoints = {name: digest(f"{folder}/checkpoints/{name}") for name in sorted(os.listdir(f"{folder}/checkpoints"))}
        found[ranks] = sorted(os.listdir(folder)), checkpoints, reported
    assert found[1] == found[2] and "last.h5" in found[1][1] and "epoch-0002.h5" in found[1][1], found
    expect_error(2, "holds a run already", *flags, "1", "-o", "run_2/")
    expect_error(2, "this command supports one", "compare", "run_1", "run_2")


def test_reports_files_missing_on_a_rank():
    """Each rank has a folder of its own, as on hosts that share no file system: who lacks the data says so, and who has others."""
    def write_data(rank, seed):
        numbers = np.random.default_rng(seed)
        with h5py.File(f"host_{rank}/data.h5", "w") as file:
            file["train/x"], file["train/y"] = numbers.standard_normal((128, 1, 8, 8)).astype(np.float32), np.arange(128) % 10

    def expect_line(text):
        train = shlex.join([COMMAND, "train", *TINY, "--data", "data.h5", "--batch", "64", "--micro-batch", "16", "--epochs", "1", "-o", "x.h5"])
        line = [MPIEXEC, "-n", "2", "sh", "-c", f"cd host_${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} && exec {train}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=dict(environment(1), **LAUNCH))
        own = [line for line in done.stderr.splitlines() if line.startswith("fakequant:")]
        assert done.returncode != 0 and len(own) == 1 and re.search(text, own[0]), done.stderr

    for rank in (0, 1):
        os.mkdir(f"host_{rank}")
    write_data(0, 1)
    expect_line(r"data\.h5.*\(rank 1 of 2 on ")
    write_data(1, 2)
    expect_line("data/training is .* on rank 1, .* on rank 0")


def test_rejects_invalid_input():
    expect_error(3, "set --micro-batch", "train", *TINY, "--data", DIGITS, "--batch", "64", "-o", "no.h5")
    expect_error(4, "4 processes for the 2 parts of --batch 32: start at most 2", "train", *TINY, "--data", DIGITS, "--batch", "32",
            "--micro-batch", "16", "-o", "no.h5")
    expect_error(1, "--batch 64 is not a multiple of --micro-batch 24: use 48 or 72", "train", *TINY, "--data", DIGITS,
            "--batch", "64", "--micro-batch", "24", "-o", "no.h5")
    expect_error(2, "can run train and qat with --micro-batch", "inspect", "float_1.h5")
    expect_error(2, "unknown command 'quat'", "quat", "float_1.h5")
    expect_error(2, "no command: see fakequant --help")
    assert on(2, "--version").stdout == run("--version").stdout
    expect_error(1, "--set shard_optimizer is for several processes", "train", *TINY, "--data", DIGITS, "--set", "shard_optimizer=true", "-o", "no.h5")
    expect_error(1, "--set reduction=fp32 is for several processes", "train", *TINY, "--data", DIGITS, "--set", "reduction=fp32", "-o", "no.h5")
    expect_error(2, "missing.h5", "qat", "missing.h5", *DATA, "--preset", "int8", "-o", "x.h5")
    assert not os.path.exists("no.h5") and not os.path.exists("x.h5")


def test_rejects_launcher_variables_without_a_launcher():
    left_over = dict(environment(1), OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="0", **LAUNCH)
    done = subprocess.run([COMMAND, *FLOAT, "-o", "left.h5"], capture_output=True, text=True, env=left_over, timeout=60)
    assert done.returncode == 2 and "4 processes were started, and this one finds 1" in done.stderr, done.stderr


def main():
    skip_without_mpi()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: ok")


main()
