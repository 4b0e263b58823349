"""ONNX's own test cases of operators with f32 inputs: each agrees, is rejected, or is listed with its reason.

The test imports each case unchanged. All f32 inputs that share the first axis are the data. It also tries each f32
input alone. The other inputs become initializers. Each output is imported by itself. A case agrees if all of its
outputs agree in one of the tries and no try gives other numbers.
"""

import itertools
import json
import os
import re
import warnings

import h5py
import numpy as np
import onnx
from lib import SOURCE, imported, run
from onnx import TensorProto, numpy_helper

LEAST_THAT_AGREE = 739
LEAST_OF_CONSTANTS = 909
RELATIVE = 1e-4  # of the largest number of the recorded output
# A rejection names a node, an input or an output, or lists operators with their nodes.
NAMED = re.compile(r"(node|input|output|tensor) '|operators are not supported: .* \(\d+: '|\] opset: \d+ is not supported")
BY_COMMAND = 10  # cases of either outcome that the command reads too
FOLDERS = ("pytorch-converted", "pytorch-operator", "simple")


def generated_cases():
    """The operator cases, which the package computes by its reference functions."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            yield case.name, case.model, case.data_sets[0]


def stored_values(folder, kind, infos):
    values = []
    for i, info in enumerate(infos):
        with open(os.path.join(folder, f"{kind}_{i}.pb"), "rb") as file:
            content = file.read()
        if not info.type.HasField("tensor_type"):
            return None
        values.append(numpy_helper.to_array(onnx.TensorProto.FromString(content)))
    return values


def stored_cases():
    """The cases that the package stores as files."""
    root = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    for kind in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, kind))):
            folder = os.path.join(root, kind, name)
            model = onnx.load(os.path.join(folder, "model.onnx"))
            constants = {tensor.name for tensor in model.graph.initializer}
            inputs = [info for info in model.graph.input if info.name not in constants]
            data = os.path.join(folder, "test_data_set_0")
            given, wanted = stored_values(data, "input", inputs), stored_values(data, "output", model.graph.output)
            if given is not None and wanted is not None:
                yield name, model, (given, wanted)


def with_constants(model, values, own):
    """The model with all inputs but `own` as initializers, and the shapes that the recorded values have."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.input[:]
    for info in model.graph.input:
        if info.name not in values:
            out.graph.input.append(info)
        elif info.name in own:
            kept = out.graph.input.add()
            kept.CopyFrom(onnx.helper.make_tensor_value_info(info.name, TensorProto.FLOAT, values[info.name].shape))
        elif values[info.name] is not None:
            out.graph.initializer.append(onnx.numpy_helper.from_array(values[info.name], info.name))
    return out


def tries(values):
    """The sets of inputs that may be the data."""
    floats = [name for name, value in values.items() if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim > 0 and value.size > 0]
    if not floats:
        return
    together = [name for name in floats if values[name].shape[0] == values[floats[0]].shape[0]]
    seen = []
    for own in [together, *([name] for name in floats)]:
        if own not in seen:
            seen.append(own)
            yield own


def make_rows(values, own):
    """The data set. Several inputs, or an input of one axis, become rows."""
    if len(own) == 1 and values[own[0]].ndim > 1:
        return values[own[0]]
    return np.concatenate([values[name].reshape(len(values[name]), -1) for name in own], 1)


def dependencies(model, output):
    """The inputs and constants that an output depends on."""
    needed = {output}
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            for attribute in node.attribute:
                for inner in attribute.g.node:
                    needed |= set(inner.input)
    return needed


def prepared(name, model, values, own, jobs):
    """Adds a job for each output. None if the model cannot be written with these inputs."""
    file = f"{name}.{len(jobs)}.onnx"
    try:
        onnx.save(with_constants(model, values, own), file)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    first = len(jobs)
    for output in (info.name for info in model.graph.output):
        needed = dependencies(model, output)
        x = np.ascontiguousarray(make_rows(values, [name for name in own if name in needed] or own))
        jobs.append((file, output, x, f"{file}.{len(jobs)}.y"))
    return range(first, len(jobs))


def judge(result, path, wanted):
    """(kind, text) of one output: "agrees", "rejected", "failed" or "differs"."""
    if "failed" in result:
        return "failed", result["failed"]
    if "rejected" in result:
        return "rejected", result["rejected"]
    if not isinstance(wanted, np.ndarray):
        return "differs", f"the recorded output is {type(wanted).__name__}"
    found = np.fromfile(path, np.float32)
    if list(wanted.shape) != result["shape"]:
        return "differs", f"shape {result['shape']}, recorded {list(wanted.shape)}"
    want = wanted.astype(np.float64).ravel()
    finite = np.isfinite(want)
    if not np.array_equal(found[~finite], want[~finite].astype(np.float32), equal_nan=True):
        return "differs", "other infinities or NaN"
    off = np.abs(found[finite] - want[finite]).max(initial=0)
    largest = np.abs(want[finite]).max(initial=0)
    return ("agrees" if off <= RELATIVE * max(largest, 1e-30) else "differs"), f"off by {off:.3g} of {largest:.3g}"


def case_kind(kinds):
    """The outcome of a case, from the outcomes of its outputs."""
    for kind in ("failed", "differs"):
        if kind in kinds:
            return kind
    if "rejected" not in kinds:
        return "agrees"
    return "partly" if "agrees" in kinds else "rejected"


def collected():
    """The cases as (name, [jobs of each try], outputs), cases of constants as (name, job, output), and all jobs."""
    cases, constants_alone, jobs = [], [], []
    for name, model, (given, wanted) in itertools.chain(generated_cases(), stored_cases()):
        constants = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input if info.name not in constants]
        values = dict(zip(names, given))
        attempts = [prepared(name, model, values, own, jobs) for own in tries(values)]
        attempts = [attempt for attempt in attempts if attempt is not None]
        if attempts:
            cases.append((name, attempts, wanted))
            constants_alone += add_constant_jobs(name, model, values, wanted, jobs)
    return cases, constants_alone, jobs


def add_constant_jobs(name, model, values, wanted, jobs):
    """Adds a job for each f32 output of the case with constants alone as inputs: 0 of the data is added to the output."""
    opset = max((entry.version for entry in model.opset_import if entry.domain == ""), default=0)
    if opset < 7 or not values or not all(isinstance(value, np.ndarray) for value in values.values()):
        return []
    found = []
    for info, value in zip(model.graph.output, wanted):
        if not isinstance(value, np.ndarray) or value.dtype != np.float32 or not 0 < value.ndim < 7 or value.size == 0:
            continue
        constant = with_constants(model, values, [])
        x = np.ones((2, *[1] * value.ndim), np.float32)
        constant.graph.input.append(onnx.helper.make_tensor_value_info("data of it", TensorProto.FLOAT, x.shape))
        constant.graph.node.append(onnx.helper.make_node("Sub", ["data of it", "data of it"], ["no data"]))
        constant.graph.node.append(onnx.helper.make_node("Add", ["no data", info.name], ["sum_with_it"]))
        constant.graph.output.append(onnx.helper.make_tensor_value_info("sum_with_it", TensorProto.FLOAT, None))
        file = f"{name}.{len(jobs)}.onnx"
        onnx.save(constant, file)
        limits = np.finfo(np.float32)  # networks hold no infinite constants
        found.append((name, len(jobs), np.repeat(np.clip(value, limits.min, limits.max)[None], 2, 0)))
        jobs.append((file, "sum_with_it", x, f"{file}.y"))
    return found


def outcome(attempts, wanted, jobs, done):
    """(kind, its outputs as [(kind, text, job)]) of the try that shows most: a difference above all."""
    order = ["failed", "differs", "agrees", "partly", "rejected"]
    found = []
    for attempt in attempts:
        outputs = [(*judge(done[job], jobs[job][3], value), job) for job, value in zip(attempt, wanted)]
        found.append((case_kind([kind for kind, _, _ in outputs]), outputs))
    return min(found, key=lambda entry: order.index(entry[0]))


def check_command(outcomes, jobs):
    """Some of the cases by `fakequant import` and `fakequant predict`: the same outcome."""
    for kind, status in (("agrees", 0), ("rejected", 2)):
        names = [name for name, (own, _) in outcomes.items() if own == kind]
        for name in names[:: max(1, len(names) // BY_COMMAND)]:
            _, text, job = outcomes[name][1][0]
            file, output, x, path = jobs[job]
            report = run("import", file, "--output-name", output, "-o", "case.h5", "--force", status=status).stderr
            if kind == "rejected":
                assert text in report, (name, text, report)
                continue
            with h5py.File("x.h5", "w") as data:
                data["test/x"] = x
            run("predict", "case.h5", "--data", "x.h5", "-o", "y.h5", "--force")
            with h5py.File("y.h5") as predicted:
                assert np.array_equal(predicted["logits"][()].ravel(), np.fromfile(path, np.float32)), name


cases, constants_alone, jobs = collected()
done = imported(jobs)
outcomes = {name: outcome(attempts, wanted, jobs, done) for name, attempts, wanted in cases}
named = {kind: {name for name, (own, _) in outcomes.items() if own == kind} for kind in ("agrees", "partly", "rejected", "differs", "failed")}
print(f"{len(outcomes)} cases:", {kind: len(names) for kind, names in named.items()})
with open("outcomes.json", "w") as file:
    json.dump({name: (kind, [text for _, text, _ in outputs]) for name, (kind, outputs) in outcomes.items()}, file, indent=0)

with open(os.path.join(SOURCE, "tests", "onnx", "conformance_reasons.json")) as file:
    reasons = json.load(file)
assert not named["failed"], named["failed"]
new = {name: outcomes[name] for name in named["differs"] - set(reasons)}
assert not new, ("differ without a reason in conformance_reasons.json", new)
kept = {name: outcomes.get(name, ("no case",))[0] for name in set(reasons) - named["differs"]}
assert not kept, ("listed in conformance_reasons.json, but differ no longer", kept)
unnamed = {name: text for name, (_, outputs) in outcomes.items() for kind, text, _ in outputs if kind == "rejected" and not NAMED.search(text)}
assert not unnamed, ("rejected without a name", unnamed)
assert len(named["agrees"]) >= LEAST_THAT_AGREE, len(named["agrees"])

alone = [(name, *judge(done[job], jobs[job][3], value)) for name, job, value in constants_alone]
other = [(name, text) for name, kind, text in alone if kind in ("failed", "differs") and name not in reasons]
assert not other, ("differ as constants", other)
agree = sum(kind == "agrees" for _, kind, _ in alone)
print(f"{agree} of {len(alone)} outputs of constants agree")
assert agree >= LEAST_OF_CONSTANTS, agree
check_command(outcomes, jobs)
