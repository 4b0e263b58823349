"""Networks trained with live batch norms: the file has them folded. With integers and free scales folding changes no bit
of the trained network; otherwise verify reports the changes."""

import shutil

import h5py
from lib import DIGITS, assert_identical, fails, result, run, trained, verified

QAT = ["--data", DIGITS, "--epochs", 1, "--lr", "0.0005", "--seed", 1]


def codes(checkpoint):
    result("predict", checkpoint, "--data", DIGITS, "--codes", "-o", "predictions.h5")
    with h5py.File("predictions.h5") as file:
        return {name: values[()] for name, values in file["codes"].items()}, file["logits"][()]


def exported(name):
    result("export", name + ".h5", "--format", "onnx", "-o", name + ".onnx")
    return name + ".h5", name + ".onnx"


def assert_same_bits(a, b):
    (own, logits), (other, other_logits) = codes(a), codes(b)
    assert own.keys() == other.keys()
    for name in own:
        assert (own[name] == other[name]).all(), name
    assert logits.tobytes() == other_logits.tobytes()


result("train", "--model", "mlp", "--model-options", '{"hidden": [64, 64], "batch_norm": true}', "--data", DIGITS,
       "--epochs", 2, "--batch", 64, "--lr", "0.004", "--seed", 5, "-o", "normed_mlp.h5")

for network in ["normed_mlp.h5", trained("cnn"), trained("digits_cnn"), trained("resnet20")]:
    for preset in ["int8", "w4a4", "w2a2"]:
        result("qat", network, "--preset", preset, "--set", "keep_bn=true", *QAT, "-o", "live.h5")
        change = result("fold", "live.h5", "-o", "folded.h5", "--data", DIGITS)
        assert change["folded"] > 0 and change["codes"] > 0 and change["different_codes"] == 0, (network, preset, change)
        assert change["accuracy_before"] == change["accuracy_after"], (network, preset, change)
        assert_same_bits("live.h5", "folded.h5")
        if preset == "w4a4":  # the engine multiplies 4-bit codes as floats
            continue
        # The file equals the trained network and the folded one.
        found = verified(*exported("live"))
        assert_identical(found)
        assert found["folded"]["codes_different"] == found["folded"]["logit_bits_different"] == 0, found
        assert_identical(verified("folded.h5", "live.onnx"))
        lines = run("verify", "live.onnx", "--checkpoint", "live.h5", "--data", DIGITS).stdout.splitlines()
        assert lines[0].startswith("verify: 0 of "), lines
        assert lines[1].startswith("batch norms folded: 0 of "), lines

# Statistics that stand still in training are the running ones: the last steps trained the folded layer's numbers.
result("qat", trained("digits_cnn"), "--preset", "int8", "--set", "keep_bn=true", "--set", "freeze_bn_after=5", *QAT, "-o", "live.h5")
assert_identical(verified(*exported("live")))

# A scale that is a power of two is none times the factor of a batch norm: other codes, which verify counts and explains.
for network in ["digits_cnn", "resnet20"]:
    result("qat", trained(network), "--preset", "int8", "--set", "scale=pow2", "--set", "keep_bn=true", *QAT, "-o", "live.h5")
    found = verified(*exported("live"), status=1)
    result("fold", "live.h5", "-o", "folded.h5")
    assert found["folded"]["codes_different"] == found["folded"]["logit_bits_different"] == 0, found
    (own, logits), (folded, folded_logits) = codes("live.h5"), codes("folded.h5")
    different = {name: int((own[name] != folded[name]).sum()) for name in own}
    assert found["different"] == {name: count for name, count in different.items() if count}, (found, different)
    assert found["codes_different"] == sum(different.values()) > 0, found
    assert found["flips"] == int((logits.argmax(1) != folded_logits.argmax(1)).sum()), found
    assert "batch norms are live" in found["reasons"][0] and "fakequant fold" in found["ways"][0], found
    fails(1, ["live.onnx does not compute what live.h5 does", "batch norms are live", "fakequant fold"],
          "verify", "live.onnx", "--checkpoint", "live.h5", "--data", DIGITS)
    lines = run("verify", "live.onnx", "--checkpoint", "live.h5", "--data", DIGITS, status=1).stdout.splitlines()
    assert lines[0].startswith(f"verify: {found['codes_different']:,} of "), lines
    assert lines[1].startswith("batch norms folded: 0 of "), lines

    # The way out that it names: the folded checkpoint is the file; trained further it stays so.
    assert_identical(verified("folded.h5", "live.onnx"))
    if network == "resnet20":
        continue
    result("qat", "folded.h5", *QAT, "-o", "further.h5")
    further = verified(*exported("further"))
    assert_identical(further)
    assert further["folded"] is None, further

# In floats folding is a rounding of 24 bits, within the tolerance of sums in another order.
for network in ["digits_cnn", "resnet20"]:
    shutil.copy(trained(network), "float.h5")
    found = verified(*exported("float"))
    assert found["codes"] == 0 and found["folded"]["flips"] == 0 and 0 < found["max_abs_diff"], found
