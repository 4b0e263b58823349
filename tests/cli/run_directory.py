"""Run directories: their contents, the bits of a plain run, resuming, and rejected input."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import browser  # noqa: E402
from command import COMMAND, DIGITS, TINY, environment, events, fails, patient, result, run, same_bytes, snapshot  # noqa: E402

DATA = ["--data", DIGITS, "--batch", "64", "--seed", "1", "--val-fraction", "0.2"]
TRAIN = TINY + DATA


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def config(path):
    with open(path + "/config.json") as file:
        return json.load(file)


def read(path):
    with open(path) as file:
        return file.read()


# A run, and the same as a file: the same bytes.
run("train", *TRAIN, "--epochs", "3", "-o", "plain.h5")
done = run("train", *TRAIN, "--epochs", "3", "--set", "keep_epochs=2", "--set", "log=csv,tensorboard", "--profile", "-o", "runs/float/")
assert same_bytes("runs/float/checkpoints/last.h5", "plain.h5")
assert same_bytes("runs/float/checkpoints/best.h5", "plain.best.h5")
assert not any("fakequant-" in path for path in snapshot()), snapshot()
names = set(os.listdir("runs/float"))
stream, = (name for name in names if name.startswith("events.out.tfevents."))
assert names == {"config.json", "metrics.jsonl", "log.txt", "report.html", "checkpoints", "metrics.csv", "profile.json",
                 stream}, names
assert set(os.listdir("runs/float/checkpoints")) == {"last.h5", "best.h5", "epoch-0002.h5", "epoch-0003.h5"}
assert same_bytes("runs/float/checkpoints/epoch-0003.h5", "plain.h5")

reported = config("runs/float")
assert reported["command"] == "train" and reported["seed"] == 1 and reported["epochs"] == 3 and reported["samples"] == 1437, reported
assert reported["given"]["batch"] == "64" and reported["defaults"]["lr"] == "0.004" and os.path.isabs(reported["given"]["data"])
assert reported["settings"]["learning_rate"] == 0.004 and reported["machine"]["threads"] == 2
assert reported["fakequant"] in run("--version").stdout and reported["machine"]["codes_multiplied_as"] in run("--version").stdout
record = lines("runs/float/metrics.jsonl")
kinds = [line["event"] for line in record]
assert kinds[0] == "start" and kinds[-1] == "end" and kinds.count("epoch") == 3 and kinds.count("step") == 51, kinds
steps = [line["step"] for line in record]
assert steps == sorted(steps) and steps[-1] == 51
confusion = [line for line in record if line["event"] == "classes"][-1]
assert confusion["of"] == "validation" and sum(map(sum, confusion["confusion"])) == confusion["samples"] == 287
right = sum(confusion["confusion"][c][c] for c in range(10)) / 287
last_epoch = [line for line in record if line["event"] == "epoch"][-1]
assert abs(100 * right - last_epoch["val_accuracy"]) < 1e-9, (right, last_epoch)
assert record[-1]["result"]["weight_bytes"] == 4 * reported["parameters"]
log = read("runs/float/log.txt").splitlines()
assert [line.split(" ", 1)[1] for line in log] == done.stdout.splitlines(), log
table = [row.split(",") for row in read("runs/float/metrics.csv").splitlines()]
assert table[0][:2] == ["event", "step"] and len(table) == 1 + 51 + 3 and all(len(row) == len(table[0]) for row in table)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        assert check == crc32c(data[at:at + 8]) and struct.unpack_from("<I", data, at + 12 + length)[0] == crc32c(body)
        yield body
        at += 16 + length


stored = list(records("runs/float/" + stream))
assert len(stored) == 2 + 51 + 3 and b"brain.Event:2" in stored[0] and b"step/loss" in stored[2], stored[:3]
name = b"\x0a\x09step/loss\x15"  # tag, then the value in four bytes
at = stored[2].index(name) + len(name)
assert abs(struct.unpack_from("<f", stored[2], at)[0] - record[1]["loss"]) < 1e-6

# A quantized one, of the directory itself; pages.
run("qat", "runs/float/", "--preset", "int8", *DATA, "--epochs", "2", "-o", "runs/int8/")
epoch = [line for line in lines("runs/int8/metrics.jsonl") if line["event"] == "epoch"][-1]
assert all(0 <= of.get("clipped", 0) <= 1 and of["amax"] > 0 for of in epoch["quantizers"].values())
assert sum("clipped" in of for of in epoch["quantizers"].values()) >= 4, epoch
assert epoch["phases"]["backward"] > 0
page = read("runs/int8/report.html")
for part in ("Loss", "Accuracy, percent", "Learning rate", "Time of a step", "amax over time", "Clipped", "taken for",
             "Worst samples", "Settings", "conv1.input_quantizer"):
    assert part in page, part
assert "http-equiv=refresh" not in page and "http:" not in page and "https:" not in page
if browser.find():
    shown = browser.dom("runs/int8/report.html", "#sort=-amax")
    order, cells = browser.column(shown, "amax")
    assert order == "descending" and len(cells) == len(epoch["quantizers"])
assert result("evaluate", "runs/int8", "--data", DIGITS)["accuracy"] > 50
assert result("inspect", "runs/int8/")["kind"] == "checkpoint"

# Existing runs are not overwritten.
fails(2, ["--resume runs/float/", "--force"], "train", *TRAIN, "-o", "runs/float/")
fails(2, ["--resume runs/float/"], "train", *TRAIN, "-o", "runs/float")
fails(2, ["is a file", "slash"], "train", *TRAIN, "-o", "plain.h5/")
os.makedirs("other")
open("other/notes.txt", "w").close()
fails(2, ["holds other files", "--force"], "train", *TRAIN, "-o", "other")
fails(2, ["and no run"], "train", *TRAIN, "--resume", "-o", "other")
fails(2, ["runs/float/", "--checkpoint", "another folder"], "train", "--checkpoint", "runs/float/checkpoints/last.h5", *DATA,
      "--force", "-o", "runs/float/")
fails(2, ["--set keep_epochs", "plain/"], "train", *TRAIN, "--set", "keep_epochs=2", "-o", "plain.h5")
fails(2, ["--set log", "'tensorboard'"], "train", *TRAIN, "--set", "log=tensorbord", "-o", "new/")
fails(2, ["--quiet and --verbose"], "train", *TRAIN, "--quiet", "--verbose", "-o", "new/")
assert not os.path.exists("new")
run("train", *TRAIN, "--epochs", "1", "--force", "-o", "other/")
assert os.path.exists("other/notes.txt") and len(lines("other/metrics.jsonl")) > 18
open("other/checkpoints/mine.h5", "w").close()
run("train", *TRAIN, "--epochs", "1", "--set", "keep_epochs=1", "--force", "-o", "other/")
assert set(os.listdir("other/checkpoints")) == {"mine.h5", "last.h5", "best.h5", "epoch-0001.h5"}

# --dry-run writes no files; --quiet prints no text.
before = snapshot()
words = run("train", *TRAIN, "--dry-run", "-o", "new/").stdout
assert "would write new/checkpoints/last.h5" in words and "nothing was written" in words, words
assert snapshot() == before and not os.path.exists("new")
fails(2, "holds a run already", "train", *TRAIN, "--dry-run", "-o", "runs/float/")
assert run("train", *TRAIN, "--epochs", "1", "--quiet", "-o", "quiet.h5").stdout == ""
assert [line["event"] for line in events("train", *TRAIN, "--epochs", "1", "--quiet", "-o", "quiet.h5")] == ["result"]

# Going on: by the folder alone, from another folder, with more epochs; the bits of one run.
run("train", *TRAIN, "--epochs", "5", "-o", "longer.h5")
folder = os.path.abspath("runs/float")
os.makedirs("elsewhere")
done = subprocess.run([COMMAND, "train", "--resume", folder, "--epochs", "5"], cwd="elsewhere", capture_output=True, text=True,
                      env=environment(2), timeout=patient(300))
assert done.returncode == 0, done.stderr
record = lines("runs/float/metrics.jsonl")
assert [line["step"] for line in record if line["event"] == "step"] == list(range(1, 86))
assert [line["event"] for line in record].count("start") == 2
assert config("runs/float")["epochs"] == 5 and config("runs/float")["given"]["set"] == ["keep_epochs=2", "log=csv,tensorboard"]
# From there the run has the schedule of the longer run. It is compared with a resumed checkpoint file.
run("train", *TRAIN, "--epochs", "5", "--resume", "-o", "plain.h5")
assert same_bytes("runs/float/checkpoints/last.h5", "plain.h5")
reported = config("runs/float")
for change in (["--lr", "0.1"], ["--seed", "9"], ["--schedule", "constant"]):
    line = run("train", "--resume", "runs/float/", "--epochs", "6", *change, status=2).stderr
    assert "other settings" in line and change[0] in line and "--allow-changes" in line and line.count("\n") == 1, line
    assert line.split("fakequant: ")[1].strip() in read("runs/float/log.txt").splitlines()[-1], line
assert config("runs/float") == reported and same_bytes("runs/float/checkpoints/last.h5", "plain.h5")
run("train", "--resume=runs/float", "--epochs", "6", "--lr", "0.001", "--seed", "3", "--schedule", "constant", "--allow-changes")
assert lines("runs/float/metrics.jsonl")[-3]["lr"] == 0.001 and config("runs/float")["seed"] == 3
fails(2, ["qat", "fakequant train --resume"], "qat", "--resume", "runs/float/")
fails(2, "'adam'", "train", *TRAIN, "--optimizer", "adm", "-o", "runs/failed/inner/")
assert not os.path.exists("runs/failed"), "a command that failed before it began leaves empty folders"
fails(2, ["nowhere"], "train", "--resume", "nowhere/")

# Directories of another version, and damaged ones.
whole = config("runs/int8")


def changed(**fields):
    with open("runs/int8/config.json", "w") as file:
        json.dump({**whole, **fields}, file)


changed(run_format=2, fakequant="9.9")
fails(2, ["newer", "9.9"], "qat", "--resume", "runs/int8/")
fails(2, ["newer", "9.9"], "compare", "runs/int8/")
changed(given={**whole["given"], "zeal": "3"})
fails(2, ["--zeal", "config.json"], "qat", "--resume", "runs/int8/")
changed(given={**whole["given"], "batch": [64]})
fails(2, ["--batch", "config.json"], "qat", "--resume", "runs/int8/")
changed(given=3)
fails(2, ["damaged"], "qat", "--resume", "runs/int8/")
with open("runs/int8/config.json", "w") as file:
    file.write("{\"run_format\": 1")
fails(2, ["config.json:1"], "qat", "--resume", "runs/int8/")
changed()
with open("runs/int8/metrics.jsonl", "a") as file:
    file.write('{"event": "step", "st')  # torn
before = len(lines_before := read("runs/int8/metrics.jsonl").splitlines()) - 1
words = run("qat", "--resume", "runs/int8/", "--epochs", "3").stdout
assert "17 of 51 steps in" in words, words
record = lines("runs/int8/metrics.jsonl")
assert [line["event"] for line in record[before:]] == ["start", *["step"] * 17, "epoch", "classes", "end"], record[before:]
assert config("runs/int8")["started"] == whole["started"] and config("runs/int8")["resumed"] > whole["started"]

# A finished run has no remaining work, and its figures stay.
kept = {name: read("runs/int8/" + name) for name in ("config.json", "metrics.jsonl", "report.html")}
figures = result("compare", "runs/int8/")["runs"]
assert "nothing is left to do" in run("qat", "--resume", "runs/int8/").stdout
assert kept == {name: read("runs/int8/" + name) for name in kept} and figures[0]["ms_per_step"] > 0
assert result("compare", "runs/int8/")["runs"] == figures
run("qat", "--resume", "runs/int8/", "--epochs", "2", status=2)
assert "--epochs is 2, and" in read("runs/int8/log.txt").splitlines()[-1]
with open("runs/int8/config.json", "w") as file:
    json.dump({**json.loads(kept["config.json"]), "epochs": 500}, file)
run("qat", "--resume", "runs/int8/", "--epochs", "4", status=2)
assert "--epochs is 4, and the run was planned for 500" in read("runs/int8/log.txt").splitlines()[-1]
run("qat", "--resume", "runs/int8/", "--epochs", "4", "--allow-changes")
with open("runs/int8/metrics.jsonl", "w") as file:
    file.write("\n".join(lines_before[:3] + ["nonsense"] + lines_before[3:]))
fails(2, ["metrics.jsonl:4"], "compare", "runs/int8/")

# A run killed at any moment resumes, with the bits of an undisturbed run.
for moment in (0.3, 0.6):
    process = subprocess.Popen([COMMAND, "train", *TRAIN, "--epochs", "5", "--set", "save_every=5", "--resume", "-o", "killed/"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(2))
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
run("train", *TRAIN, "--epochs", "5", "--set", "save_every=5", "--resume", "-o", "killed/")
assert same_bytes("killed/checkpoints/last.h5", "longer.h5")
record = lines("killed/metrics.jsonl")
assert [line["step"] for line in record if line["event"] == "step"] == list(range(1, 86))

# Comparison of runs.
run("qat", "runs/float/", "--preset", "w4a4", *DATA, "--epochs", "1", "-o", "runs/w4a4/")
done = result("compare", "runs/float/", "runs/w4a4", "--html", "compare.html")["runs"]
assert [of["format"] for of in done] == ["float", "w4a4"] and done[0]["bits"] == 32 and 4 < done[1]["bits"] < 10, done
assert all(of["accuracy"] > 10 and of["ms_per_step"] > 0 and of["state"] == "done" for of in done)
assert all(of["ms_per_sample"] is None and of["engine"] is None for of in done), done
done = result("compare", "runs/float/", "runs/w4a4", "--latency", "--python", "false")["runs"]
assert all(of["ms_per_sample"] > 0 and of["engine"] == "fakequant" for of in done), done
words = run("compare", "runs/float/", "--latency", "--python", "/nowhere/python").stdout
assert "sample, ms" in words and " fakequant" in words, words
words = run("compare", "runs/float/", "runs/w4a4").stdout
assert "--preset w4a4" in words and "runs/w4a4" in words, words
if browser.find():
    assert len(browser.column(browser.dom("compare.html"), "Accuracy")[1]) == 2
for name, batch in (("given", ["--batch", "64"]), ("default", [])):
    run("train", *TINY, "--data", DIGITS, *batch, "--epochs", "1", "--lr", "4e-3" if batch else "0.004", "-o", f"runs/{name}/")
words = run("compare", "runs/given", "runs/default", "--html", "same.html").stdout
assert "--batch" not in words and "--lr" not in words, words
page = read("same.html")
assert page.count("class=hollow") == 2 and "Hollow: accuracy in training" in page and "data-of=runs" in page
fails(2, ["runs/absent", "no such folder"], "train", "--resume", "runs/absent")
fails(2, ["runs/absent", "no such folder"], "qat", "--resume", "runs/absent")
fails(2, ["plain.h5 is a file, no run directory", "--output plain.h5"], "train", "--resume", "plain.h5")
fails(2, ["runs", "no config.json"], "train", "--resume", "runs")
fails(2, "no run directory", "compare", "plain.h5")
fails(2, "no run is named", "compare")
print("run directories: ok")
