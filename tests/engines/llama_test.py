"""A gpt exported to GGUF, in llama.cpp: answers, bits a token, and every bit of every linear layer of codes."""

import os

from lib import fails, needs, result, run, small_gpt

needs("llama.cpp", "bin/python", "engine/libfakequant_llama.so")
small_gpt()


def verified(checkpoint, file, *flags):
    return result("verify", file, "--engine", "llama.cpp", "--checkpoint", checkpoint, "--data", "text.h5", *flags)


for preset, buffers in [("q4_0", {"repacked", "plain"}), ("q8_0", {"plain"})]:
    run("qat", "gpt.h5", "--data", "text.h5", "--preset", preset, "--epochs", "1", "-o", f"{preset}.h5")
    run("export", f"{preset}.h5", "--format", "gguf", "-o", f"{preset}.gguf")
    found = verified(f"{preset}.h5", f"{preset}.gguf", "--random", "64")
    # measured on networks of 6 and 800 steps: 0.2 % and 1 % of answers, as f16 between layers makes other codes
    assert found["same"] and found["flip_tolerance"] == 0.02 and found["answers"] == 85 * 32, found
    layers = found["layers"]
    assert len(layers) == 13 and all(layer["bits_different"] == 0 < layer["values"] for layer in layers), layers
    assert {layer["buffer"] for layer in layers} <= buffers and layers[0]["buffer"] == sorted(buffers)[-1], layers
    bits = found["bits_a_token"]
    assert abs(bits["own"] - bits["engine"]) <= bits["bound"] == 1e-3, bits
    assert {stage["operator"] for stage in found["stages"]} == {"LayerNorm", "attention", "GELU"}, found["stages"]
    assert found["stages"][0]["largest"] < 2e-6 < found["stages"][1]["largest"], found["stages"]  # f16 begins in attention

for kind in ["f32", "f16"]:
    run("export", "gpt.h5", "--format", "gguf", "--float-type", kind, "-o", f"{kind}.gguf")
    found = verified("gpt.h5", f"{kind}.gguf")
    assert found["same"] and found["layers"] == [] and found["flip_tolerance"] == 0.002, found

# Another checkpoint's file, and files that are none.
line = run("verify", "q4_0.gguf", "--engine", "llama.cpp", "--checkpoint", "q8_0.h5", "--data", "text.h5", status=1).stderr
assert "does not compute what" in line and "export it again" in line, line
with open("q4_0.gguf", "rb") as file:
    whole = file.read()
with open("cut.gguf", "wb") as file:
    file.write(whole[:len(whole) // 2])
fails(2, ["cut.gguf", "does not load"], "verify", "cut.gguf", "--engine", "llama.cpp", "--checkpoint", "q4_0.h5", "--data", "text.h5")
os.remove("cut.gguf")
