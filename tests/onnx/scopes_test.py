"""Module paths of nodes in the metadata of PyTorch's newer exporter: in error messages and names of layers."""

import onnx
from lib import fails, result
from onnx import TensorProto, helper


def node(op, inputs, output, scopes, **attributes):
    made = helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes)
    entry = made.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", scopes
    return made


def save(name, nodes, rows):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "net", [info("x", TensorProto.FLOAT, ["N", 4])], [info("y", TensorProto.FLOAT, rows)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), name)


FIRST = node("Relu", ["x"], "r", "['', 'encoder', 'encoder.act', 'relu']")
save("named.onnx", [FIRST, node("Sigmoid", ["r"], "y", "['', 'head.0', 'sigmoid']")], ["N", 4])
result("import", "named.onnx", "-o", "named.h5")
result("export", "named.h5", "--format", "onnx", "-o", "again.onnx")
assert [made.name for made in onnx.load("again.onnx").graph.node][:2] == ["encoder_act", "head_0"]
save("refused.onnx", [FIRST, node("Asinh", ["r"], "a", "['', 'encoder', 'asinh']"), node("Acosh", ["a"], "y", "broken")], ["N", 4])
fails(2, ["Acosh (1: 'node_y')", "Asinh (1: '/encoder/node_a')"], "import", "refused.onnx", "-o", "no.h5")
