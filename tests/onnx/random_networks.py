"""random_networks.py [COUNT] [SEED]: trains, quantizes, exports and verifies COUNT random networks with seeds from
SEED on, in this folder. If `export` lists no float operator for a network, the engine must give
equal codes and bits with integer kernels only; other networks must stay within the known error of floats. Networks that
fail are reduced and stored in failed/SEED, with the commands to run them. Exit status 1 if one failed."""

import collections
import contextlib
import copy
import io
import json
import os
import shlex
import shutil
import sys
import threading

import h5py
import onnx
from lib import COMMAND, SOURCE, result, start
from onnx import numpy_helper
from random_network import CONFIGS, random_network, write_data, write_model

sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines import onnx as verify_onnx  # noqa: E402

INTEGER = {"QLinearConv", "NhwcMaxPool", "MaxPool", "QLinearAdd", "QLinearConcat", "QLinearGlobalAveragePool",
           "QLinearAveragePool", "QGemm", "ConvInteger"}
SCALES = {"Add", "Cast", "Mul", "Relu"}  # the sums of ConvInteger, which are floats then
MOVES = {"QuantizeLinear", "DequantizeLinear", "Transpose", "Flatten", "Reshape", "Slice", "Concat", "Clip", "Identity",
         "Split", "Gather", "Expand", "Shape", "Squeeze", "Unsqueeze"}
SAME = {"codes_different": 0, "logit_bits_different": 0, "alone_logit_bits_different": 0, "exposed_logit_bits_different": 0}
FLOAT_CODES, FLOAT_FLIPS = 1e-3, 0.02  # of networks with float operators: codes and answers that differ. Measured: 1e-4 and 0
SOFTMAX_CODES = 0.03  # where the engine has a softmax of codes, by a table of its own. Measured: 0.0264
TIED_FLIPS = 0.08  # of W2A2, whose logits are a few numbers that often tie. Measured: 0.0703


class OnePython:
    """Replaces --python: the script of verify runs in this process, which has already loaded the engine."""

    def __init__(self, folder):
        self.asked, self.answered = os.path.join(folder, "asked"), os.path.join(folder, "answered")
        self.program = os.path.join(folder, "python")
        for pipe in [self.asked, self.answered]:
            os.mkfifo(pipe)
        with open(self.program, "w") as file:
            file.write(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{self.asked}"\nread -r status < "{self.answered}"\n'
                       'exit "$status"\n')
        os.chmod(self.program, 0o755)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            with open(self.asked) as pipe:
                _, *sys.argv[1:] = pipe.read().partition("\nfakequant.engines.")[2].splitlines()
            with contextlib.redirect_stdout(io.StringIO()):
                status = verify_onnx.main()
            with open(self.answered, "w") as pipe:
                pipe.write(f"{status}\n")


def commands(network):
    """The commands to run, in a folder with model.json, data.h5 and config.json; the last two are export and verify."""
    data = ["--data", "data.h5"]
    training = [*data, "--epochs", 1, "--batch", 16, "--lr", 0.01]
    config = ["--config", "config.json"] if network["format"] in CONFIGS else ["--preset", network["format"]]
    keep = ["--keep-bn"] if network["keep_bn"] else []
    net = "tuned.h5" if network["amax"] else "net.h5"
    steps = [["train", "--model", "model.json", *training, "--seed", network["seed"], "-o", "float.h5"],
             ["calibrate", "float.h5", *data, *config, "--target", network["target"], "--scale", network["scale"], *keep, "-o",
              "net.h5"]]
    if network["amax"]:
        steps.append(["qat", "net.h5", *training, "--amax", network["amax"], "-o", net])
    return [*steps, ["export", net, "--format", "onnx", "-o", "net.onnx"],
            ["verify", "net.onnx", "--checkpoint", net, *data, "--random", 64, "--batch", 48, "--tolerance", 1e6, "--code-tolerance",
             1]]


def verified(network, python):
    """Runs the commands in this folder: what verify found, and the operators that export named."""
    write_model(network, "model.json")
    write_data(network, "data.h5")
    if network["format"] in CONFIGS:
        with open("config.json", "w") as file:
            json.dump(CONFIGS[network["format"]], file)
    *steps, verify = commands(network)
    for step in steps:
        last = result(*step, threads=1)
    printed, _ = start(*verify, "--json", "--python", python, threads=1).communicate()
    assert printed, verify
    found = json.loads(printed.splitlines()[-1])
    return found | (found.get("folded") or {}) | {"trained": found}, last["float_operators"]


def misses_a_change(network, python, folder):
    """Changes one code of the last layer's weight in the file of the last run. Returns whether verify still succeeds. Takes
    a code that the inputs of most samples are multiplied by; None if the checkpoint has no name for the layer's inputs."""
    checkpoint = next(step[step.index("--checkpoint") + 1] for step in commands(network) if step[0] == "verify")
    with contextlib.chdir(folder):
        result("predict", checkpoint, "--data", "data.h5", "--codes", "-o", "codes.h5")
        model = onnx.load("net.onnx")
        last = next(node for node in reversed(model.graph.node) if node.op_type in ("Gemm", "MatMul"))
        producers = {name: node for node in model.graph.node for name in node.output}
        quantizer, weight_name = (producers[name].input[0] for name in last.input[:2])
        weight = next(tensor for tensor in model.graph.initializer if tensor.name == weight_name)
        with h5py.File("codes.h5") as file:
            if quantizer not in file["codes"]:
                return None
            inputs = file["codes"][quantizer][()].reshape(len(file["logits"]), -1)
        used, codes = int((inputs != 0).sum(0).argmax()), numpy_helper.to_array(weight).copy()
        place = (used, 0) if codes.shape[0] == inputs.shape[1] else (0, used)
        codes[place] += 1 if codes[place] <= 0 else -1
        weight.CopyFrom(numpy_helper.from_array(codes, weight.name))
        onnx.save(model, "changed.onnx")
        process = start("verify", "changed.onnx", "--checkpoint", checkpoint, "--data", "data.h5", "--python", python, threads=1)
        process.communicate()
        return process.returncode != 1


def is_exact(network, floats):
    return network["target"] != "tensorrt" and not floats


def faults(network, found, floats):
    """Describes all faults."""
    out = [f"the file has no {name}" for name in found["not_in_file"]]
    if is_exact(network, floats):
        out += [f"{found[key]} {key}" for key in SAME if found[key]]
        if network["scale"] == "free":  # the folded network equals the trained one
            out += [f"{found['trained'][key]} {key} from what was trained" for key in SAME if found["trained"][key]]
        parameters = {"Add"} if any(node["type"] == "parameter" for node in network["nodes"]) else set()
        kernels = set(found["kernels"]) - INTEGER - MOVES - parameters - (SCALES if "ConvInteger" in found["kernels"] else set())
        if kernels and network["scale"] == "free":
            out.append(f"kernels of floats, though no operator is named: {', '.join(sorted(kernels))}")
        return out
    share = SOFTMAX_CODES if "QLinearSoftmax" in found["kernels"] else FLOAT_CODES
    if found["codes_different"] > share * found["codes"]:
        out.append(f"{found['codes_different']} of {found['codes']} codes differ")
    flips = TIED_FLIPS if network["format"] == "w2a2" else FLOAT_FLIPS
    if found["flips"] > flips * found["samples"]:
        out.append(f"{found['flips']} of {found['samples']} answers differ")
    return out


def find_faults(network, python, folder):
    """The faults of a run in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with contextlib.chdir(folder):
        found, floats = verified(network, python)
    return faults(network, found, floats), found, floats


def without(network, i):
    """The network without a node: its readers read the node's input."""
    smaller = copy.deepcopy(network)
    removed = smaller["nodes"].pop(i)
    for node in smaller["nodes"]:
        node["inputs"] = [removed["inputs"][0] if name == removed["name"] else name for name in node["inputs"]]
    return smaller


def simpler(network):
    """Networks that may show the same fault more plainly."""
    for key, value in [("amax", ""), ("keep_bn", False), ("format", "int8")]:
        if network[key] != value:
            yield {**network, key: value}
    for i in range(len(network["nodes"]) - 1):
        yield without(network, i)


def shrunk(network, python, folder):
    """A smallest network that still fails."""
    for smaller in simpler(network):
        try:
            if find_faults(smaller, python, folder)[0]:
                return shrunk(smaller, python, folder)
        except AssertionError:  # shapes that do not fit any more
            continue
    return network


def keep_failed(network, python):
    folder = os.path.join("failed", str(network["seed"]))
    network = shrunk(network, python, folder)
    with contextlib.suppress(AssertionError):
        find_faults(network, python, folder)
    with open(os.path.join(folder, "run.sh"), "w") as file:
        file.write("".join(f"{shlex.join([COMMAND, *map(str, step)])}\n" for step in commands(network)))
    return folder


def run_networks(seeds):
    """The seeds that failed, and how many networks had to be exact."""
    python, failed, exact, float_operators = OnePython(os.getcwd()).program, [], 0, collections.Counter()
    most, codes, changed = collections.Counter(), collections.Counter(), 0
    for seed in seeds:
        network = random_network(seed)
        try:
            wrong, found, floats = find_faults(network, python, "network")
        except AssertionError as error:
            wrong, found, floats = [" ".join(str(error).split())], None, []
        if found:
            codes["compared"] += sum(found["compared"].values())
            codes["not compared"] += sum(found["not_compared"].values())
        if found and is_exact(network, floats):
            exact += 1
            if not wrong and found["compared"] and not found["float_kernels"] and network["format"] == "int8":
                missed = misses_a_change(network, python, "network")
                changed += missed is not None
                wrong = ["verify does not notice a changed weight"] if missed else []
        elif found:
            float_operators += collections.Counter({entry["operator"] for entry in floats})
            most["codes"] = max(most["codes"], found["codes_different"] / max(1, found["codes"]))
            most["flips"] = max(most["flips"], found["flips"])
        if wrong:
            failed.append(seed)
            print(f"seed {seed} ({network['format']}, {network['target']}, {network['scale']}): {'; '.join(wrong)}; left in "
                  f"{keep_failed(network, python)}", flush=True)
    print(f"{len(seeds)} networks from seed {seeds[0]}: {len(failed)} failed; {exact} had to be exact, {len(seeds) - exact} "
          f"named operators that run in floats: {dict(float_operators.most_common())}; there at most {most['codes']:.2g} of the codes and "
          f"{most['flips']} answers differ; of all codes {codes['not compared']:,} were not compared, {codes['compared']:,} were; {changed} files with a changed weight", flush=True)
    return failed, exact


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    count, first = numbers + [20, 1][len(numbers):]
    raise SystemExit(1 if run_networks(range(first, first + count))[0] else 0)
