"""Networks exported to GGUF, in llama.cpp: answers, bits a token, every bit of every linear layer of codes; and what
llama.cpp's own quantizer makes of them."""

import json
import os
import sys

import h5py
import numpy as np
from lib import HOME, SOURCE, fails, needs, result, run, small_gpt
from llama_folder import folder

sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines.llama import Products  # noqa: E402

needs("llama.cpp", "bin/python", "engine/libfakequant_llama.so")
vocabulary = small_gpt()


def verified(checkpoint, file, *flags):
    found = result("verify", file, "--engine", "llama.cpp", "--checkpoint", checkpoint, "--data", "text.h5", *flags)
    bits, default = found["bits_a_token"], found["f16_cache"]
    assert found["same"] and abs(bits["own"] - bits["engine"]) <= bits["bound"] == 1e-3, found
    own, engine = default["bits_a_token"]
    assert default["answers"] > 0 and abs(own - engine) < 0.01, found
    return found


def trained(network, preset):
    name = f"{network}_{preset}"
    run("qat", f"{network}.h5", "--data", "text.h5", "--preset", preset, "--epochs", "1", "-o", f"{name}.h5")
    run("export", f"{name}.h5", "--format", "gguf", "-o", f"{name}.gguf")
    return name


def check_layers(layers, count, buffers):
    assert len(layers) == count and all(layer["bits_different"] == 0 < layer["values"] for layer in layers), layers
    assert {layer["buffer"] for layer in layers} <= buffers and layers[0]["buffer"] == sorted(buffers)[-1], layers


def weights(file):
    """Values of all weights, which are codes times scales."""
    run("import", file, "-o", "weights.h5", "--force")
    with h5py.File("weights.h5") as found:
        return {name: value[...] for name, value in found["parameters"].items()}


def same_weights(first, second):
    """Whether no code and no scale is another."""
    own, other = weights(first), weights(second)
    return set(own) == set(other) and all(np.array_equal(value, other[name]) for name, value in own.items())


PRESETS = [("q4_0", {"repacked", "plain"}), ("q8_0", {"plain"})]
for preset, buffers in PRESETS:
    name = trained("gpt", preset)
    found = verified(f"{name}.h5", f"{name}.gguf", "--random", "64")
    assert found["flip_tolerance"] == 1e-3 and found["answers"] == 85 * 32, found
    check_layers(found["layers"], 13, buffers)
    assert {stage["operator"] for stage in found["stages"]} == {"LayerNorm", "attention", "GELU"}, found["stages"]
    assert all(stage["largest"] < 2e-6 for stage in found["stages"][:3]), found["stages"]  # attention in f32
    assert found["stages"][3]["operator"] == "GELU" and found["stages"][3]["largest"] == 0, found["stages"]

# Llama's kind: no table of f16 in between, and the order of heads' rows that llama.cpp has.
for kind, architecture, tied, biases in [("llama", "LlamaForCausalLM", False, False), ("qwen2", "Qwen2ForCausalLM", True, True)]:
    folder(kind, architecture, vocabulary, tied, biases, positions=32)
    run("import", kind, "--input-shape", "32", "-o", f"{kind}_random.h5")
    run("train", "--checkpoint", f"{kind}_random.h5", "--data", "text.h5", "--epochs", "1", "-o", f"{kind}.h5")
    for preset, buffers in PRESETS:
        name = trained(kind, preset)
        found = verified(f"{name}.h5", f"{name}.gguf", "--random", "64")
        assert found["flips"] <= found["flip_tolerance"] * found["answers"] and found["flip_tolerance"] == 1e-3, found
        check_layers(found["layers"], 15, buffers)
        assert {stage["operator"] for stage in found["stages"]} == {"RMSNorm", "attention", "SiLU and a product"}, found["stages"]
        assert all(stage["largest"] < 2e-6 for stage in found["stages"][:4]), found["stages"]

# Scaled rotary positions: by keys of the file, and for llama3 by a factor per pair.
whole = {"factor": 4.0, "original_max_position_embeddings": 8}
for scaling in ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "yarn", **whole},
                {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **whole}):
    kind = scaling["rope_type"]
    folder(kind, "LlamaForCausalLM", vocabulary, False, False, positions=32)
    with open(f"{kind}/config.json") as file:
        config = {**json.load(file), "rope_scaling": scaling}
    with open(f"{kind}/config.json", "w") as file:
        json.dump(config, file)
    run("import", kind, "--input-shape", "32", "-o", f"{kind}_random.h5")
    run("train", "--checkpoint", f"{kind}_random.h5", "--data", "text.h5", "--epochs", "1", "-o", f"{kind}.h5")
    name = trained(kind, "q8_0")
    found = verified(f"{name}.h5", f"{name}.gguf")
    check_layers(found["layers"], 15, {"plain"})
    assert all(stage["largest"] < 2e-6 for stage in found["stages"][:4]), found["stages"]

# llama.cpp's quantizer: of the floats it makes the blocks that are trained here, and of the blocks' own values the same again.
engines = os.path.join(HOME, "llama.cpp")
for network in ["gpt", "llama"]:
    run("export", f"{network}.h5", "--format", "gguf", "-o", f"{network}.gguf")
    for preset, _ in PRESETS:
        run("calibrate", f"{network}.h5", "--data", "text.h5", "--preset", preset, "-o", "rounded.h5", "--force")
        run("export", "rounded.h5", "--format", "gguf", "-o", "rounded.gguf", "--force")
        Products(engines, f"{network}.gguf").quantized("theirs.gguf", preset.upper())
        assert same_weights("rounded.gguf", "theirs.gguf"), (network, preset)
        Products(engines, f"{network}_{preset}.gguf").quantized("floats.gguf", "F32")
        Products(engines, "floats.gguf").quantized("again.gguf", preset.upper())
        assert same_weights(f"{network}_{preset}.gguf", "again.gguf"), (network, preset)
        assert not same_weights("rounded.gguf", "again.gguf"), (network, preset)

for kind in ["f32", "f16"]:
    run("export", "gpt.h5", "--format", "gguf", "--float-type", kind, "-o", f"{kind}.gguf")
    found = verified("gpt.h5", f"{kind}.gguf")
    assert found["layers"] == [] and found["flip_tolerance"] == 0.002, found

# Another checkpoint's file, and files that are none.
line = run("verify", "gpt_q4_0.gguf", "--engine", "llama.cpp", "--checkpoint", "gpt_q8_0.h5", "--data", "text.h5", status=1).stderr
assert "does not compute what" in line and "export it again" in line, line
with open("gpt_q4_0.gguf", "rb") as file:
    whole = file.read()
with open("cut.gguf", "wb") as file:
    file.write(whole[:len(whole) // 2])
fails(2, ["cut.gguf", "does not load"], "verify", "cut.gguf", "--engine", "llama.cpp", "--checkpoint", "gpt_q4_0.h5", "--data", "text.h5")
os.remove("cut.gguf")
