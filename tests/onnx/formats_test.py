"""Other formats in ONNX Runtime, each at the settings that verify chooses for it."""

import json

from lib import DIGITS, assert_identical, calibrated, fails, has_avx512_vnni, has_vnni, result, run, trained, unpack_checkpoint, verified

EXACT = {"codes_different": 0, "flips": 0, "not_in_file": []}


def assert_close(found, relative):
    """Codes are the same, and logits to the rounding of float sums."""
    assert {key: found[key] for key in EXACT} == EXACT and found["tolerance"] == relative, found


# Powers of two: products of codes are exact in floats too, with any kernel.
for preset in ["w4a8", "w4a4"]:
    assert_identical(verified(*calibrated("digits_cnn", "--preset", preset, "--scale", "pow2"), "--tolerance", 0))

# Codes with few bits in bytes: products of integers, with any scales. More than 8 bits: products of floats, whose sums
# round to another code now and then.
for bits in [2, 3, 5, 6, 7]:
    for network in ["digits_cnn", "resnet20"] if bits < 4 else ["mlp"]:
        with open("bits.json", "w") as config:
            json.dump({"rules": [{"pattern": "*input_quantizer*", "num_bits": bits},
                                 {"pattern": "*weight_quantizer", "num_bits": bits, "axis": 0, "narrow_range": True}]}, config)
        found = verified(*calibrated(network, "--config", "bits.json", name=f"{network}_{bits}"), "--random", 1000)
        assert_identical(found, 1360)
        assert found["level"] == "all" and {"QLinearConv", "QGemm"} & set(found["kernels"]), found
for preset in ["w3a3", "w2a2"]:
    assert_identical(verified(*calibrated("cnn", "--preset", preset)))
    calibrated("cnn", "--preset", preset, "--target", "tensorrt", name=f"{preset}_trt")
    assert result("verify", f"{preset}_trt.onnx", "--target", "tensorrt")["breaks"] == []
with open("wide.json", "w") as config:
    json.dump({"scale": "pow2", "rules": [{"pattern": "*input_quantizer*", "num_bits": 12, "narrow_range": True},
                                          {"pattern": "*weight_quantizer", "num_bits": 8, "axis": 0}]}, config)
found = verified(*calibrated("mlp", "--config", "wide.json", name="wide"), "--tolerance", 1e-3, "--code-tolerance", 2e-3)
assert found["codes"] > 0 and found["flips"] == 0, found

# Sums of E4M3 products may be longer than a float's 24 bits: logits are equal except for their last bits, codes except for sums at
# a tie. Measured: 2 of 5,396,480, and 0 in another network.
result("calibrate", unpack_checkpoint("digits_cnn"), "--data", DIGITS, "--preset", "fp8", "--scale", "pow2", "-o", "fp8.h5")
result("export", "fp8.h5", "--format", "onnx", "-o", "fp8.onnx")
fp8 = verified("fp8.h5", "fp8.onnx", "--random", 1000, "--code-tolerance", 1e-6, "--tolerance", 1e-6)
assert fp8["flips"] == 0 and fp8["max_abs_diff"] < 1e-6, fp8
assert fp8["level"] == "basic" and fp8["session_options"] == {"session.disable_quant_qdq": "1"}, fp8
# Measured: 26 of 13,600, and 126 where ONNX Runtime has the vectors of AVX-512.
assert fp8["logit_bits_different"] <= (1e-2 if has_avx512_vnni() else 2e-3) * fp8["logits"], fp8
# Free scales: sums in another order, once in a while on the other side of a tie. Measured of two networks: 6 and 60 of
# 1,428,480 codes, and 118 with the narrower vectors of processors without VNNI; logits differ by a step of a code.
result("export", unpack_checkpoint("digits_cnn_fp8"), "--format", "onnx", "-o", "free.onnx")
free = verified("digits_cnn_fp8.h5", "free.onnx", "--code-tolerance", 8.3e-5, "--tolerance", 5e-3)
assert free["flips"] == 0, free

# Floats times weights: only sums differ.
for network in ["mlp", "digits_cnn"]:
    for preset in ["int4_blockwise", "int8_weight_only", "binary"]:
        assert_close(verified(*calibrated(network, "--preset", preset)), 1e-6)
    result("fold", trained(network), "-o", "float.h5")
    result("export", "float.h5", "--format", "onnx", "-o", "float.onnx")
    found = verified("float.h5", "float.onnx")
    assert_close(found, 1e-6)
    assert found["codes"] == 0, found

# Weights of types that ONNX Runtime has no kernels for, as others of equal values.
for preset in ["nvfp4", "mxfp8", "mxfp4"]:
    with open("weights.json", "w") as config:
        json.dump({"preset": preset, "rules": [{"pattern": "*input_quantizer", "enable": False}]}, config)
    calibrated("mlp", "--config", "weights.json", name="own_types")
    fails(2, "export --emulate", "verify", "own_types.onnx", "--checkpoint", "own_types.h5", "--data", DIGITS)
    assert result("verify", "own_types.onnx", "--target", "tensorrt")["breaks"] == []
    result("export", "own_types.h5", "--format", "onnx", "--emulate", "-o", "emulated.onnx")
    assert_close(verified("own_types.h5", "emulated.onnx"), 1e-6)
found = verified("own_types.h5", "emulated.onnx", "--tolerance", "1e-12", status=None)
assert found["same"] or (found["first_difference"]["in_floats"] and "3 kernels compute in floats" in found["reasons"][0]), found

# INT4 as a session runs it by default: activations are rounded to 8 bits in every block.
default = verified("mlp_preset_int4_blockwise.h5", "mlp_preset_int4_blockwise.onnx", "--session",
                   "session.qdq_matmulnbits_accuracy_level=4", "--tolerance", 1)
assert default["max_abs_diff"] > 1e-4, default

# TensorRT's form of a network: signed codes, float biases. ONNX Runtime runs it in floats, where a code that differs changes
# others through 20 layers: of resnet20 6,408 of 6,497,280, and logits by 0.0063 of the largest (without VNNI 8,815 and 10,824
# of two networks, and 0.013); of the network in kept/, with half the channels, 1,383 of 3,260,160. Powers of two are exact
# in floats.
assert_identical(verified(*calibrated("resnet20", "--preset", "int8", "--target", "tensorrt", "--scale", "pow2")))
result("export", unpack_checkpoint("resnet20_tensorrt"), "--format", "onnx", "-o", "trt.onnx")
codes, logits = (0.0017, 0.013) if has_vnni() is False else (0.001, 0.0065)
found = verified("resnet20_tensorrt.h5", "trt.onnx", "--code-tolerance", codes, "--tolerance", logits)
assert found["flips"] == 0 and found["codes"] > 0 and found["not_in_file"] == [], found
checked = result("verify", "trt.onnx", "--target", "tensorrt")
assert checked["breaks"] == [] and not checked["engine_run"], checked
assert "rules checked, engine not run: 0 breaks" in run("verify", "trt.onnx", "--target", "tensorrt").stdout
calibrated("resnet20", "--preset", "int8", name="ort")
broken = run("verify", "ort.onnx", "--target", "tensorrt", status=1).stdout
assert "conv1.input_quantizer: codes are UINT8" in broken and "conv1.bias: an INT32 constant" in broken, broken

# Networks that no file can represent are reported before training.
for preset, quantizer in [("mxfp8", "fc1.input_quantizer"), ("nvfp4", "fc2.input_quantizer")]:  # fc1 of nvfp4 has E4M3
    expected = "takes its range from each input"
    done = run("calibrate", trained("mlp"), "--data", DIGITS, "--preset", preset, "-o", "none.h5")
    assert "cannot be exported to ONNX for ort" in done.stderr and expected in done.stderr and quantizer in done.stderr, done
    done = run("qat", "none.h5", "--data", DIGITS, "--epochs", "1", "-o", "trained.h5")
    assert expected in done.stderr, done.stderr
    done = run("calibrate", trained("mlp"), "--data", DIGITS, "--preset", preset, "--target", "none", "-o", "none.h5")
    assert "cannot be exported" not in done.stderr, done.stderr
assert "cannot be exported" not in run("calibrate", trained("mlp"), "--data", DIGITS, "--preset", "w2a2", "-o", "w2a2.h5").stderr
