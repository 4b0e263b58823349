"""Each operator and reference function that an export knows, in ONNX Runtime: the same values."""

import os
import subprocess

import h5py
import numpy as np
import onnx
import onnxruntime
from lib import session_options

EXACT = {"relu", "relu6", "clip", "neg", "scale", "add_exact", "reshape", "reshape_into_batch", "flatten", "flatten_late", "transpose",
         "slice", "concat", "identity", "max_pool2d", "max_pool1d", "max_pool2d_ceil", "max_pool2d_uneven", "max_pool2d_dilated", "embedding", "embedding_of_moved_ids", "embedding_and_its_ids",
         "fake_tensor_quant", "fake_tensor_quant_narrow", "fake_tensor_quant_unsigned", "fake_tensor_quant_channels", "tensor_quant",
         "multiply", "scaled_e4m3", "slice_step", "index_select", "input_part", "expand", "expand_to_batch", "pad", "pad_crop", "pad_constant",
         "pad_reflect", "pad_replicate", "pad_circular", "pixel_shuffle", "pixel_unshuffle", "minimum", "maximum", "less", "less_equal",
         "greater", "greater_equal", "equal", "not_equal", "where", "div", "square", "shift", "max", "min", "abs", "reciprocal",
         "floor", "ceil", "round", "sign", "trunc", "round_to_f16", "round_to_bf16", "prelu", "prelu_of_one"}
# Files of quantized numbers, and one whose rows are not samples.
REFUSED = {"fake_tensor_quant", "fake_tensor_quant_narrow", "fake_tensor_quant_unsigned", "fake_tensor_quant_channels", "scaled_e4m3",
           "tensor_quant", "weights_of_fake_tensor_quant", "reshape_into_batch"}
RELATIVE = 2e-6  # sums in another order, and the engine's own exp, tanh and erf


def values(name, case, options):
    """Outputs of the engine, and of this library."""
    session = onnxruntime.InferenceSession(f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    ids = session.get_inputs()[0].type == "tensor(int64)"
    assert ids == (name in {"embedding", "embedding_of_moved_ids"}), name
    x = case["x"][()]
    found, wanted = session.run(None, {"input": x.astype(np.int64) if ids else x})[0], case["y"][()]
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    return found, wanted


def imported(name, case):
    """Output of the file imported as a network, or the reason why it cannot be imported."""
    x, y = case["x"][()].astype(np.float32), case["y"]
    x.tofile("x")
    sizes = [str(size) for size in x.shape]
    done = subprocess.run([os.environ["ONNX_IMPORTED"], f"{name}.onnx", "x", "y", *sizes], capture_output=True, text=True)
    return np.fromfile("y", np.float32).reshape(y.shape) if done.returncode == 0 else done.stderr


subprocess.run([os.environ["ONNX_OPERATORS"], "."], check=True)
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.disable_quant_qdq", "1")  # it would put E4M3 into integer kernels
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
with h5py.File("cases.h5") as cases:
    assert len(cases) > 40 and EXACT <= set(cases), EXACT - set(cases)
    wrong, rejected = {}, {}
    for name, case in cases.items():
        if name == "attributes":
            continue
        onnx.checker.check_model(f"{name}.onnx", full_check=True)
        found, wanted = values(name, case, options)
        off = np.abs(found - wanted).max() / np.abs(wanted).max()
        if not off <= (0 if name in EXACT or name.startswith("resize_nearest") else RELATIVE):
            wrong[name] = off
        again = imported(name, case)
        if isinstance(again, str):
            rejected[name] = again
        elif not np.abs(again - wanted).max() / np.abs(wanted).max() <= (0 if name in EXACT else RELATIVE):
            wrong[name + " imported"] = np.abs(again - wanted).max() / np.abs(wanted).max()
    assert not wrong, wrong
    assert set(rejected) == REFUSED, rejected

# Sums that are moved before they are rounded, in the engine's integer kernels: every code.
with h5py.File("sums.h5") as cases:
    names = [name for name in cases if name != "attributes"]
    assert len(names) == 22, names
    for name in names:
        found, wanted = values(name, cases[name], session_options())
        different = (found != wanted).sum()
        assert different == 0, f"{name}: {different} of {wanted.size} codes"
