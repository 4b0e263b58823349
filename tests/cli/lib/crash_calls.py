"""Entry point of scripts/crash for every command that writes. crash_calls.py calls MOST [NAME..]: number of failing calls of each kind;
crash_calls.py kills COUNT [NAME..]: number of kills over all commands; crash_calls.py places MOST [NAME..]: number of places of each
command ("all") at which memory runs out."""

import os
import shutil
import sys

from command import DIGITS, TINY, run
from failing_calls import Trial, kill_spread, try_calls
from failing_places import try_places

REPORTS = ("report.html", "config.json", "log.txt", "metrics.jsonl", "metrics.csv", "profile.json")


def trials():
    """Each trial replaces the output of an earlier run with other bytes."""
    shutil.rmtree("start", ignore_errors=True)
    os.makedirs("start")
    short = ["--data", DIGITS, "--epochs", "1", "--batch", "720", "--threads", "1"]
    run("train", *TINY, *short, "--seed", "2", "-o", "start/float.h5", threads=1)
    run("calibrate", "start/float.h5", "--data", DIGITS, "--samples", "64", "-o", "start/int8.h5", threads=1)
    run("calibrate", "start/float.h5", "--data", DIGITS, "--samples", "64", "--preset", "w4a8", "-o", "start/w4a8.h5", threads=1)
    run("calibrate", "start/float.h5", "--data", DIGITS, "--samples", "64", "--target", "tensorrt", "-o", "start/trt.h5", threads=1)
    run("export", "start/int8.h5", "-o", "start/out", threads=1)
    run("train", *TINY, *short, "--seed", "2", "-o", "start/run/", threads=1)
    changing = tuple(f"run/{name}" for name in REPORTS)
    yield Trial("train", "start", ["train", *TINY, *short, "--seed", "3", "-o", "float.h5"])
    yield Trial("train --resume", "start", ["train", "--resume", "run/", "--epochs", "2"], changing[2:], changing[:2], ())
    yield Trial("qat", "start", ["qat", "int8.h5", *short, "-o", "qat.h5"])
    yield Trial("calibrate", "start", ["calibrate", "float.h5", "--data", DIGITS, "--samples", "80", "-o", "int8.h5"])
    yield Trial("calibrate --state", "start", ["calibrate", "float.h5", "--data", DIGITS, "--samples", "80", "--state", "state.h5",
                                               "-o", "int8.h5"])
    yield Trial("compress", "start", ["compress", "int8.h5", "-o", "packed.h5"])
    yield Trial("export scales", "start", ["export", "w4a8.h5", "-o", "out"])
    yield Trial("export safetensors", "start", ["export", "trt.h5", "--format", "safetensors", "-o", "out"])
    yield Trial("export onnx", "start", ["export", "int8.h5", "--format", "onnx", "-o", "net.onnx"])
    yield Trial("predict", "start", ["predict", "int8.h5", "--data", DIGITS, "-o", "answers.h5"])


def readers():
    """Commands that write no files, in the folder of trials()."""
    for name, arguments in (("inspect", ["int8.h5"]), ("compare", ["run/"]), ("doctor", []),
                            ("evaluate", ["int8.h5", "--data", DIGITS])):
        yield Trial(name, "start", [name, *arguments], again=(), says=name in ("inspect", "compare"))


def chosen(names=None, more=()):
    return [trial for trial in (*trials(), *more) if names is None or trial.name in names]


def crash_kills(all_trials, count, log):
    return sum(kill_spread(trial, -(-count // len(all_trials)), seed, log) for seed, trial in enumerate(all_trials))


if __name__ == "__main__":
    def tell(text):
        print(text, flush=True)

    way, most = sys.argv[1], None if sys.argv[2] == "all" else int(sys.argv[2])
    found = chosen(sys.argv[3:] or None, readers() if way == "places" else ())
    if way == "kills":
        done, words = crash_kills(found, most, tell), "kills"
    elif way == "places":
        done, words = sum(try_places(trial, most, tell) for trial in found), "copies of a process had no memory"
    else:
        done, words = sum(try_calls(trial, most, log=tell) for trial in found), "calls of the system failed, or were the last"
    assert done > 0, "nothing was tried"
    print(f"{done} {words}: every file is as it was, or replaced whole")
