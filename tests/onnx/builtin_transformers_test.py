"""The built-in vit, encoder and gpt with tied output weights: trained, fine-tuned as INT8, exported and compared with ONNX Runtime."""

import json

import onnx
from lib import DIGITS, english, result, run

with open("text.txt", "w", encoding="utf-8") as file:
    file.write(english(12000))
run("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")
with open("texts.csv", "w", encoding="utf-8") as file:
    file.write("text,label\n" + "".join(f"{'good' if i % 3 else 'bad'} day {i * i},{i % 3 > 0}\n" for i in range(300)))
run("dataset", "from-text", "texts.csv", "--text", "text", "--label", "label", "--length", "16", "-o", "texts.h5")


def compared(name, data, model, options, tuning):
    """Report of verify for the fine-tuned network, and the nodes of its file."""
    result("train", "--model", model, "--model-options", json.dumps(options), "--data", data, "--epochs", 3, "--batch", 16, "--lr",
           0.004, "--seed", 2, "-o", f"{name}.h5")
    result("qat", f"{name}.h5", "--preset", "int8", "--data", data, "--epochs", 1, "--batch", 16, "--lr", 0.0005, "-o",
           f"{name}_int8.h5", *tuning)
    result("export", f"{name}_int8.h5", "--format", "onnx", "-o", f"{name}.onnx")
    lines = run("verify", f"{name}.onnx", "--checkpoint", f"{name}_int8.h5", "--data", data, "--json", "--code-tolerance",
                "0.002", "--tolerance", "0.5").stdout
    return json.loads(lines.splitlines()[-1]), onnx.load(f"{name}.onnx").graph


# Softmax, norms and GELU are the engine's own: a code near a tie behind them may be off by one, and no answer changes.
SMALL = {"layers": 1, "width": 32, "heads": 4}
LLAMA = SMALL | {"kv_heads": 2, "norm": "rms_norm", "feed_forward": "swiglu", "positions": "rotary", "bias": False, "context": 16}
for name, data, model, options, *tuning in [
        ("vit", DIGITS, "vit", SMALL | {"patch": 2, "dropout": 0.1}),
        ("vit_token", DIGITS, "vit", SMALL | {"patch": 2, "pool": "token"}),
        ("encoder", "texts.h5", "encoder", SMALL | {"dropout": 0.1}),
        ("tied", "text.h5", "gpt", SMALL | {"context": 16, "tied": True, "dropout": 0.1}),
        ("adapters", "text.h5", "gpt", SMALL | {"context": 16}, "--lora", 4),
        ("llama", "text.h5", "gpt", LLAMA | {"tied": True})]:
    found, graph = compared(name, data, model, options, tuning)
    assert found["flips"] == 0 and found["codes"] > 0 and not found["not_in_file"], (name, found)
    assert found["codes_different"] <= 1e-3 * found["codes"], (name, found)
    if model == "vit":  # its patches' sums are of integers: read as floats, or joined with the token on a grid
        kernel = "QLinearConv" if "pool" in options else "ConvInteger"
        assert found["kernels"].get(kernel) == 1 and found["begun"][0]["codes_different"] == 0, (name, found)
        assert "patches" not in {kernel["node"] for kernel in found["float_kernels"]}, (name, found["float_kernels"])
        run("import", f"{name}.onnx", "-o", "back.h5")  # positions are added to codes there
        losses = [result("evaluate", net, "--data", data)["loss"] for net in ("back.h5", f"{name}_int8.h5")]
        assert losses[0] == losses[1], losses
    weights = {tensor.name: tensor.data_type for tensor in graph.initializer}
    if options.get("tied"):  # looked up as floats, multiplied as codes
        assert weights["tokens.weight"] == onnx.TensorProto.FLOAT and weights["head.weight"] == onnx.TensorProto.INT8, weights
    assert not any("lora" in tensor for tensor in weights), name  # their sum with the weights is the file's
    assert "Dropout" not in {node.op_type for node in graph.node}, name
print("built-in transformers: ok")
