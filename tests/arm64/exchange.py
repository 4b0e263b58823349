"""The command of this machine (FAKEQUANT) and of 64-bit ARM (FAKEQUANT_ARM64, a command line that begins with an emulator) read each
other's files. ARM trains, calibrates, fine-tunes and exports. Its files have equal codes and outputs here, bit for bit, equal
files for engines, and equal codes in ONNX Runtime (FAKEQUANT_PYTHON has the packages of `verify`). Bounds are the measured
differences: float sums in another order, and erf, whose last bit differs."""

import json
import os
import shlex
import subprocess

import h5py
import numpy as np

SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
DIGITS = os.path.join(SOURCE, "data", "digits.h5")
COMMANDS = {"here": [os.environ["FAKEQUANT"]], "arm": shlex.split(os.environ["FAKEQUANT_ARM64"])}
ONE_THREAD = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


def run(where, *arguments):
    line = [*COMMANDS[where], *map(str, arguments), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env=ONE_THREAD)
    assert done.returncode == 0, f"{line}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def both(output, *arguments):
    """The files of one run on each, which are named by where they were written."""
    for where in COMMANDS:
        run(where, *arguments, "-o", output.format(where))
    return [output.format(where) for where in COMMANDS]


def arrays(path, below="/"):
    """The data sets of a group and its subgroups, by name."""
    found = {}
    with h5py.File(path) as file:
        file[below].visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    assert found, (path, below)
    return found


def largest_difference(first, second):
    """Largest difference of floats of the same names, relative to the largest of each."""
    assert first.keys() == second.keys(), (first.keys(), second.keys())
    return max(np.abs(np.float64(first[n]) - second[n]).max() / max(np.abs(first[n]).max(), 1e-30)
               for n in first if first[n].dtype.kind == "f" and first[n].size)


def predictions(checkpoint, data):
    """How many codes are others on ARM, of how many, and what of the outputs is, as a share."""
    here, arm = map(arrays, both(checkpoint + ".{}.out.h5", "predict", checkpoint, "--data", data, "--codes"))
    codes = [name for name in here if name.startswith("codes/")]
    assert codes and here.keys() == arm.keys(), (here.keys(), arm.keys())
    different = sum(int((here[name] != arm[name]).sum()) for name in codes)
    return different, sum(here[name].size for name in codes), largest_difference(*({"": out["logits"]} for out in (here, arm)))


def same_bytes(files):
    here, arm = (open(file, "rb").read() for file in files)
    assert here == arm, f"{files}: {len(here)} and {len(arm)} bytes differ"
    return len(here)


def check(name, model, data, training, verifying=(), *, trained=0, noise=(), ranges=0, tuned=0, codes=0, outputs=0):
    """Bounds are shares: of parameters after training, without `noise`, of ranges, of fine-tuned parameters, of codes and outputs."""
    begun = both(name + ".{}.h5", "train", *model, "--data", data, *training, "--seed", 1)
    calibrated = both(name + ".{}.int8.h5", "calibrate", begun[1], "--data", data, "--preset", "int8", "--samples", 64)
    fine = both(name + ".{}.qat.h5", "qat", calibrated[0], "--data", data, *training)
    exported = both(name + ".{}.onnx", "export", fine[1], "--format", "onnx")
    size = same_bytes(exported) + same_bytes([file + "_scales.json" for file in both(name + ".{}", "export", fine[1])])
    for what, files, group, most, without in (("train", begun, "parameters", trained, noise), ("qat", fine, "parameters", tuned, ()),
                                              ("calibrate", calibrated, "quantizers", ranges, ())):
        here, arm = ({n: values for n, values in arrays(file, group).items() if n not in without} for file in files)
        share = largest_difference(here, arm)
        print(f"{name}: {what}: {group} differ by {share:.1e}")
        assert share <= most, (name, what, share)
    for checkpoint in (calibrated[0], fine[1]):
        different, count, share = predictions(checkpoint, data)
        print(f"{checkpoint}: {different} of {count} codes differ, outputs by {share:.1e}")
        assert different <= codes * count and share <= outputs, (checkpoint, different, share)
    found = run("here", "verify", exported[1], "--checkpoint", fine[1], "--data", data, *verifying)
    print(f"{exported[1]}: {size} bytes with the scales are the same; {found['codes_different']} of {found['codes']} codes differ in",
          found["engine"])
    assert found["codes"] > 0 and found["flips"] == 0 and (verifying or found["codes_different"] == 0), found


print(subprocess.run([*COMMANDS["arm"], "doctor"], capture_output=True, text=True, check=True, env=ONE_THREAD).stdout)
check("mlp", ["--model", "mlp", "--model-options", '{"hidden": [64, 64]}'], DIGITS, ["--steps", 20])
# Biases before a batch norm and biases of keys have a gradient of rounding errors only, and Adam amplifies it.
check("cnn", ["--model", "cnn", "--model-options", '{"widths": [8, 8, 8], "features": 16}'], DIGITS, ["--steps", 20, "--batch", 32],
      trained=1e-6, noise=["features.bias"])

with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as readme, open("text.txt", "w", encoding="utf-8") as text:
    text.write(readme.read()[:6000])
run("arm", "dataset", "from-text", "text.txt", "--windows", 16, "-o", "text.h5")
# A code near a tie, behind erf or another sum, makes another step of fine-tuning.
check("gpt", ["--model", "gpt", "--model-options", '{"layers": 1, "width": 32, "heads": 4, "context": 16}'], "text.h5",
      ["--steps", 20, "--batch", 16, "--lr", 0.004], ["--code-tolerance", 0.002, "--tolerance", 0.5],
      trained=3e-7, noise=["block1_attention.k_proj.bias"], ranges=1e-7, tuned=4.1e-3)
print("exchange with 64-bit ARM: ok")
