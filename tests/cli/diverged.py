"""Runs that diverge: the last good checkpoint stays, and files with NaN or infinity are rejected by all commands."""

import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, TINY, fails, result, run  # noqa: E402
from forge import StateFile  # noqa: E402

# One step per epoch. The first has a learning rate of 0, the second gives infinite weights with a finite loss.
SUDDEN = ["--optimizer", "sgd", "--lr", "1e38", "--weight-decay", "1e9", "--schedule", "constant", "--batch", "1100",
          "--data", DIGITS]
BURST = SUDDEN + ["--set", "schedule.warm_up=2"]


def diverges(*arguments, says, epoch):
    line = run(*arguments, *BURST, "--epochs", "2", status=1).stderr
    assert line.count("\n") == 1 and line.startswith("fakequant: [train] "), line
    for text in ["--lr", "--set clip_norm", "epoch 2", *says]:
        assert text in line, f"'{text}' is not in: {line}"
    assert StateFile(epoch[0]).attributes["progress/epoch"] == epoch[1], epoch


diverges("train", *TINY, "-o", "run.h5", says=["parameters/", "run.h5 is of the end of epoch 1"], epoch=("run.h5", 1))
good = result("evaluate", "run.h5", "--data", DIGITS)
assert good["loss"] < 10, good
diverges("train", *TINY, "-o", "ema.h5", "--ema", "0.9", says=["ema.h5 is of the end of epoch 1"], epoch=("ema.h5", 1))
diverges("train", *TINY, "-o", "best.h5", "--val-fraction", "0.2", says=["best.h5 is of the end of epoch 1"],
         epoch=("best.best.h5", 1))
assert result("evaluate", "best.best.h5", "--data", DIGITS)["loss"] < 10
diverges("train", *TINY, "-o", "often.h5", "--set", "save_every=1", says=["often.h5 is of the end of epoch 1"],
         epoch=("often.h5", 1))
line = run("train", *TINY, "-o", "never.h5", *SUDDEN, "--epochs", "1", status=1).stderr
assert "this run has not written never.h5" in line and not os.path.exists("never.h5"), line
run("train", *SHORT, "-o", "float.h5")
line = run("qat", "float.h5", "--preset", "int8", "-o", "qat.h5", *BURST, "--epochs", "2", status=1).stderr
assert "qat.h5 is of the end of epoch 1" in line, line
assert result("evaluate", "qat.h5", "--data", DIGITS)["loss"] < 10

# Files whose checksums are right.
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
for source in ("float.h5", "int8.h5"):
    for value in (float("nan"), float("inf"), -float("inf")):
        broken = StateFile(source)
        broken.put_float("parameters/fc.weight", 3, value)
        broken.save("broken_" + source)
        takes = [["evaluate"], ["predict", "-o", "out.h5"], ["fold", "-o", "out.h5"], ["export", "-o", "out"],
                 ["export", "--format", "onnx", "-o", "out.onnx"], ["inspect"], ["sensitivity"], ["compress", "-o", "out.h5"],
                 ["qat", "--epochs", "1", "-o", "out.h5"] + (["--preset", "int8"] if source == "float.h5" else [])]
        if source == "float.h5":
            takes += [["calibrate", "-o", "out.h5"], ["sensitivity", "--effective-bits", "5"],
                      ["train", "--epochs", "1", "-o", "out.h5", "--checkpoint"]]
        for command in takes if value != value else takes[:1]:
            data = [] if command[0] in ("inspect", "compress", "export") else ["--data", DIGITS]
            place = ["broken_" + source]
            line = command + place if command[-1] == "--checkpoint" else command[:1] + place + command[1:]
            fails(2, ["broken_" + source, "parameters/fc.weight", "element 3"], *line, *data)
broken = StateFile("run.h5")
broken.put_float("optimizer/fc.weight/momentum", 0, float("nan"))
broken.save("moments.h5")
result("evaluate", "moments.h5", "--data", DIGITS)
fails(2, ["moments.h5", "optimizer/fc.weight/momentum"], "train", *TINY, *BURST, "--epochs", "2", "--resume", "-o",
      "moments.h5")

# Networks from elsewhere.
run("export", "float.h5", "--format", "onnx", "-o", "float.onnx")
with open("float.onnx", "rb") as file:
    network = file.read()
bias = StateFile("float.h5").get("parameters/fc.bias")
assert network.count(bias) == 1
with open("broken.onnx", "wb") as file:
    file.write(network.replace(bias, struct.pack("<f", float("inf")) + bias[4:]))
fails(2, ["broken.onnx", ".bias has inf at element 0"], "import", "broken.onnx", "-o", "out.h5")
print("diverged: ok")
