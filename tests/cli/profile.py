"""`--profile`: the table and the JSON rows add up, the trace is what Perfetto reads, bad places are refused at once."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, result, run  # noqa: E402

KINDS = {"quantize", "product forward", "dX", "dW", "epilogue", "optimizer", "loader", "other"}


def check_rows(profile, layers, kinds):
    rows = profile["rows"]
    assert abs(sum(row["ms"] for row in rows) - profile["ms_per_step"]) < 1e-6 * profile["ms_per_step"]
    assert abs(sum(row["share"] for row in rows) - 1) < 1e-9
    assert all(row["ms"] >= 0 for row in rows)
    found = {row["layer"].split(".")[0] for row in rows}
    assert layers <= found, layers - found
    assert kinds <= {row["kind"] for row in rows}, kinds - {row["kind"] for row in rows}


def check_trace(path, layers):
    with open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    open_until = []
    for event in events:
        while open_until and open_until[-1] <= event["ts"] + 1e-6:
            open_until.pop()
        assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + 1e-6, event
        open_until.append(event["ts"] + event["dur"])
    assert {"dW", "optimizer"} <= {event["cat"] for event in events}
    assert layers <= {event["name"].split(":")[0] for event in events}


LAYERS = {"conv1", "conv2", "fc1", "fc2"}
done = run("train", *SHORT, "--profile=trace.json", "-o", "float.h5")
table = [line.split() for line in done.stdout.splitlines()]
assert ["ms", "quantize", "product", "dX", "dW", "epilogue", "forward", "backward", "all", "share"] in table, done.stdout
first = [line[0] for line in table if line]
LAYERS = {name for name in first if name.startswith(("conv", "fc"))}
assert len(LAYERS) >= 3 and {"all", "(optimizer)", "(loader)", "(other)"} <= set(first), done.stdout
check_trace("trace.json", LAYERS)

quantized = result("qat", "float.h5", "--preset", "int8", "--data", DIGITS, "--epochs", "1", "--profile", "-o", "qat.h5")
assert quantized["profile"]["trace"] == "qat.profile.json"
check_rows(quantized["profile"], LAYERS, KINDS)
check_trace("qat.profile.json", LAYERS)
assert not [name for name in os.listdir(".") if name.endswith(".tmp")]

fails(2, ["nowhere", "trace.json"], "train", *SHORT, "--profile=nowhere/trace.json", "-o", "never.h5")
fails(2, ["--profile", "--output"], "train", *SHORT, "--profile=float.h5", "-o", "float.h5")
print("profile: ok")
