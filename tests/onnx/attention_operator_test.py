"""The operator Attention with all of its parts, against ONNX's reference: masks, windows, lengths, past keys, caps and its other outputs."""

import itertools
import os
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

N, L, H, D = 2, 5, 4, 3
random = np.random.default_rng(0)


def floats(*shape):
    return random.standard_normal(shape).astype("f")


class Case:
    """Attention of products of the input x [N, L, 8], and how to run it."""

    def __init__(self, heads=H, past=0, mask=None, lengths=None, rows=False, output=0, queries=L, opset=25, **attributes):
        self.constants, self.nodes = [], []
        q, k, v = (self.heads(h, rows) for h in (H, heads, heads))
        if queries != L:
            q = self.add("Slice", q, np.array([0]), np.array([queries]), np.array([1 if rows else 2]))
        before = [self.heads(heads, False, past) if past else "" for _ in range(2)]
        names = [q, k, v, self.constant(mask) if mask is not None else "", *before, self.lengths(lengths)]
        if rows:
            attributes.update(q_num_heads=H, kv_num_heads=heads)
        while not names[-1]:
            names.pop()
        outputs = ["", "", "", ""]
        outputs[output] = "y"
        outputs[0] = outputs[0] or "unused"
        while not outputs[-1]:
            outputs.pop()
        self.nodes.append(helper.make_node("Attention", names, outputs, **attributes))
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", L, 8])]
        if lengths == "computed":
            inputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, ["N"]))
        graph = helper.make_graph(self.nodes, "attention", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], self.constants)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)
        self.inputs = {"x": floats(N, L, 8)}
        if lengths == "computed":
            self.inputs["n"] = np.array([2, L])

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op, *inputs, **attributes):
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def heads(self, heads, rows, length=L):
        x = self.add("MatMul", "x", floats(8, heads * D))
        if length != L:
            x = self.add("Slice", x, np.array([0]), np.array([length]), np.array([1]))
        if rows:
            return x
        return self.add("Transpose", self.add("Reshape", x, np.array([0, length, heads, D])), perm=[0, 2, 1, 3])

    def lengths(self, lengths):
        if lengths is None or lengths == "computed":
            return "n" if lengths else ""
        return self.constant(np.full(N, lengths))

    def difference(self):
        """The largest one from the reference, relative to the largest output; the message of a rejected file."""
        onnx.save(self.model, "case.onnx")
        parts = [value.reshape(N, -1).astype("f") for value in self.inputs.values()]
        x = np.concatenate(parts, 1) if len(parts) > 1 else self.inputs["x"]
        x.tofile("x")
        done = subprocess.run([os.environ["ONNX_IMPORTED"], "case.onnx", "x", "y", *map(str, x.shape)], capture_output=True, text=True)
        if done.returncode:
            return done.stderr
        wanted = ReferenceEvaluator(self.model).run(None, self.inputs)[0]
        found = np.fromfile("y", "f").reshape(wanted.shape)
        return float(np.abs(found - wanted).max() / (np.abs(wanted).max() or 1))


some = random.random((L, L)) < 0.6
hidden = some.copy()
hidden[1] = False  # one query sees no key
MASKS = {"none": None, "booleans": some, "hidden": hidden, "numbers": floats(L, L), "of_heads": floats(H, L, L), "row": floats(1, L)}
cases = {}
for (mask, value), causal, (left, right) in itertools.product(MASKS.items(), (0, 1), ((-1, -1), (1, 2), (2, -1), (-1, 0))):
    if mask == "row" and causal and left == right == -1:
        continue  # the reference applies the causal order to the only row of the mask
    cases[f"{mask}_{causal}_{left}_{right}"] = dict(mask=value, is_causal=causal, left_window_size=left, right_window_size=right)
for causal, left, rows in itertools.product((0, 1), (-1, 1), (False, True)):
    cases[f"past_{causal}_{left}_{rows}"] = dict(past=3, is_causal=causal, left_window_size=left, rows=rows, heads=2)
    cases[f"fewer_queries_{causal}_{left}_{rows}"] = dict(queries=2, is_causal=causal, left_window_size=left, rows=rows)
    for lengths in (2, L, "computed"):
        cases[f"lengths_{lengths}_{causal}_{left}_{rows}"] = dict(lengths=lengths, is_causal=causal, left_window_size=left, right_window_size=left, rows=rows)
for mode, cap, mask in itertools.product((0, 1, 3), (0.0, 2.0), ("none", "hidden", "numbers")):
    if mode == 0 and cap:
        continue  # the reference gives capped scores here, its text the products
    cases[f"scores_{mode}_{cap}_{mask}"] = dict(output=3, qk_matmul_output_mode=mode, softcap=cap, mask=MASKS[mask], heads=2)
cases.update(capped=dict(softcap=1.5, heads=2), capped_causal=dict(softcap=1.5, is_causal=1), scaled=dict(scale=0.3), no_keys=dict(lengths=0), short=dict(mask=some[:, :3], opset=24),
             short_numbers=dict(mask=floats(L, 2), opset=24), shortest=dict(mask=floats(L, 1), opset=24), present_key=dict(output=1, past=2), present_value=dict(output=2, heads=2),
             mask_of_all=dict(mask=floats(1, H, L, L)), masked_scores=dict(output=3, qk_matmul_output_mode=2), added_scores=dict(output=3, qk_matmul_output_mode=2, mask=floats(L, L)),
             precise=dict(softmax_precision=11))

wrong = {}
for name, options in cases.items():
    off = Case(**options).difference()
    if isinstance(off, str) or not off < 2e-6:  # 6e-7 was seen
        wrong[name] = off
assert not wrong, "\n".join(f"{name}: {off}" for name, off in wrong.items())

for options, expected in ((dict(mask=floats(N, 1, L, L)), "differs from sample to sample"), (dict(softmax_precision=10), "attribute 'softmax_precision' is 10: 1 or 11 is supported"),
                      (dict(output=3, qk_matmul_output_mode=2, mask=some), "returns masked scores"), (dict(softcap=-1.0), "attribute 'softcap' is -1"),
                      (dict(left_window_size=-2), "attribute 'left_window_size' is -2"), (dict(left_window_size=1, opset=24), "attribute 'left_window_size' is of opset 25 and later")):
    found = Case(**options).difference()
    assert isinstance(found, str) and expected in found, (options, found)
print(f"attention operator: {len(cases)} cases, ok")
