"""The operator table of the reader against ONNX's own: every input and attribute of every supported operator and opset."""

import os
import re
import subprocess

import onnx
from onnx import defs, helper

LETTERS = {"INT": "i", "INTS": "is", "FLOAT": "f", "FLOATS": "fs", "STRING": "s", "STRINGS": "ss", "TENSOR": "t", "GRAPH": "g",
           "SPARSE_TENSOR": "x"}
FIRST, LAST = 6, 28
OPTION = defs.OpSchema.FormalParameterOption


def opsets(text):
    """The opsets of "@11-17", and the text without them."""
    entry, _, span = text.partition("@")
    first, _, last = span.partition("-")
    return entry, range(int(first or FIRST), int(last or LAST) + 1)


def row_inputs(row, opset):
    entries = [opsets(text) for text in row["inputs"].split()]
    return [entry for entry, known in entries if opset in known]


def row_attributes(row, opset):
    """Type and whether it is required, by name."""
    found = {}
    for text in row["attributes"].split():
        entry, known = opsets(text)
        if opset in known:
            name, letters, marks = re.fullmatch(r"(\w+):([a-z]+)(.*)", entry).groups()
            assert name not in found, (row, name)
            found[name] = letters, "!" in marks
    return found


printed = subprocess.run([os.environ["ONNX_IMPORTED"], "--table"], capture_output=True, text=True, check=True).stdout
table = [dict(zip(("domain", "name", "first", "last", "inputs", "attributes"), line.split("|"))) for line in printed.splitlines()]
own = [row for row in table if row["domain"] == ""]
assert len(own) > 100 and len({row["name"] for row in own}) == len(own)
assert defs.onnx_opset_version() >= LAST, defs.onnx_opset_version()

compared = 0
for row in own:
    for opset in range(int(row["first"]), int(row["last"]) + 1):
        schema = defs.get_schema(row["name"], opset, "")
        what = row["name"], opset
        theirs = {name: (LETTERS[a.type.name], a.required) for name, a in schema.attributes.items()}
        ours = row_attributes(row, opset)
        assert ours.keys() == theirs.keys(), (what, ours.keys() ^ theirs.keys())
        for name, (letters, required) in theirs.items():
            assert ours[name][0] == letters and (ours[name][1] or not required), (what, name)
        inputs = row_inputs(row, opset)
        assert len(inputs) == len(schema.inputs), (what, inputs)
        for entry, given in zip(inputs, schema.inputs):
            assert entry.endswith("*") == (given.option == OPTION.Variadic), (what, entry)
            assert given.option != OPTION.Optional or entry.endswith("?"), (what, entry)
        compared += 1

# No row ends with a deprecated version.
for row in own:
    assert not defs.get_schema(row["name"], int(row["last"]), "").deprecated, row


def error_text(opsets=(("", 18),), functions=(), attribute=None):
    """The message about a file of one Relu; empty where it is imported."""
    node = helper.make_node("Relu", ["x"], ["y"])
    node.attribute.extend([] if attribute is None else [attribute])
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph([node], "one", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets], functions=functions, ir_version=8)
    onnx.save(model, "refused.onnx")
    return subprocess.run([os.environ["ONNX_IMPORTED"], "refused.onnx", "x", "y", "1", "4"], capture_output=True, text=True).stderr


own_relu = helper.make_function("", "Relu", ["X"], ["Y"], [helper.make_node("Neg", ["X"], ["Y"])], [helper.make_opsetid("", 18)])
reference = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="other")
for expected, options in (("function 'Relu': it redefines an operator of ONNX", {"functions": [own_relu]}),
                      ("it has two opsets of ONNX, 18 and 13", {"opsets": (("", 18), ("ai.onnx", 13))}),
                      ("attribute 'alpha' is unknown", {"attribute": reference}),
                      *((f"opset: {version} is not supported, 6 to 28 are", {"opsets": (("", version),)}) for version in (0, 1, -1, 99, 2**62))):
    assert expected in error_text(**options), (expected, error_text(**options))
assert not error_text(), error_text()
print(f"schema: {len(own)} operators, {compared} versions compared with onnx {onnx.__version__}: ok")
