"""fakequant generate, and attention on codes by --attention and --kv: the same text with and without a cache, alone or with
others, on any number of threads; quantizers by name; QAT; rejected input."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import SOURCE, english, fails, result, run  # noqa: E402

TEXT = english(6000)
with open("text.txt", "w", encoding="utf-8") as file:
    file.write(TEXT)
run("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")
DATA = ["--data", "text.h5"]
run("train", "--model", "gpt", "--model-options", '{"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "context": 16}',
    *DATA, "--epochs", "4", "--batch", "8", "--lr", "0.005", "--seed", "1", "-o", "float.h5")


def texts(checkpoint, *flags, prompt="The ", seed=3, threads=2):
    return result("generate", checkpoint, "--prompt", prompt, "--tokens", 60, "--seed", seed, *flags, threads=threads)["texts"]


def quantizers(checkpoint):
    return run("calibrate", "float.h5", *DATA, "--preset", "int8", *checkpoint).stdout


# Formats, and the text of each with and without a cache.
losses = {"float.h5": result("evaluate", "float.h5", *DATA)["loss"]}
assert "bmm" not in quantizers(["-o", "int8.h5"])
for name, flags, formats in [("codes.h5", ["--attention", "int8"], ["q_bmm_quantizer", "softmax_quantizer", "uint8, amax 1"]),
                             ("kv.h5", ["--kv", "int8,per=head"], ["k_bmm_quantizer", "int8, axis 1, 2 amax"]),
                             ("channel.h5", ["--kv", "int4,per=channel"], ["v_bmm_quantizer", "int4"]),
                             ("token.h5", ["--kv", "int4"], ["k_bmm_quantizer", "v_bmm_quantizer", "int4, block[-1] -1, dynamic"]),
                             ("nvfp4.h5", ["--kv", "nvfp4"], ["v_bmm_quantizer", "e2m1"]),
                             ("both.h5", ["--attention", "fp8", "--kv", "int8"], ["q_bmm_quantizer", "e4m3"])]:
    report = quantizers([*flags, "-o", name]).lower()
    assert all(what in report for what in formats), (name, report)
    losses[name] = result("evaluate", name, *DATA)["loss"]
    assert abs(losses[name] - losses["float.h5"]) < 0.15, losses
for name in ["float.h5", "int8.h5", "codes.h5", "kv.h5", "nvfp4.h5"]:
    one = texts(name)
    assert len(one) == 1 and one[0].startswith("The ") and len(one[0]) == 64, one
    three = texts(name, "--no-cache", "--count", 3, threads=1)
    assert three[0] == one[0] and len(set(three)) == 3, name
assert run("generate", "codes.h5", "--prompt", "The ", "--tokens", "60", "--seed", "3").stdout == texts("codes.h5")[0] + "\n"
assert texts("codes.h5", "--temperature", 0) == texts("codes.h5", "--temperature", 0, seed=9)
assert texts("codes.h5", "--top-k", 1) == texts("codes.h5", "--temperature", 0)
assert texts("codes.h5", "--context", 4) != texts("codes.h5")
assert texts("codes.h5", prompt=TEXT[:40])[0].startswith(TEXT[:40])  # longer than the context

fails(2, "--prompt is empty", "generate", "codes.h5", "--prompt", "")
fails(2, "--prompt is missing", "generate", "codes.h5")
assert re.search(r"accuracy \d+\.\d\d %", run("evaluate", "codes.h5", *DATA).stdout)

# It trains, and the loss stays close.
run("qat", "codes.h5", *DATA, "--epochs", "2", "--batch", "8", "--lr", "0.001", "-o", "qat.h5")
assert result("evaluate", "qat.h5", *DATA)["loss"] < losses["codes.h5"] + 0.05
assert texts("qat.h5") == texts("qat.h5", "--no-cache")
run("qat", "float.h5", *DATA, "--preset", "int8", "--set", "attention=int8", "--epochs", "1", "--batch", "8", "-o", "at_once.h5")

# Tokens of other kinds.
for unit, prompt in [("bytes", "The"), ("words", "the")]:
    run("dataset", "from-text", "text.txt", "--windows", "8", "--tokens", unit, "-o", f"{unit}.h5")
    run("train", "--model", "gpt", "--model-options", '{"layers": 1, "width": 8, "heads": 2, "context": 8}', "--data",
        f"{unit}.h5", "--epochs", "1", "-o", f"{unit}_float.h5")
    found = result("generate", f"{unit}_float.h5", "--prompt", prompt, "--tokens", 5)["texts"][0]
    assert found.startswith(prompt), found

# Rejected input.
fails(2, ["[generate]", "--prompt has '\u00e9' at offset 2", "characters"], "generate", "float.h5", "--prompt", "Th\u00e9")
fails(2, "--prompt", "generate", "float.h5")
fails(2, ["--temperature", "-1"], "generate", "float.h5", "--prompt", "a", "--temperature", "-1")
fails(2, ["--context", "1 to 16"], "generate", "float.h5", "--prompt", "a", "--context", "17")
fails(2, ["--attention", "int8"], "calibrate", "float.h5", *DATA, "--attention", "int9", "-o", "none.h5")
fails(2, "'channel'", "calibrate", "float.h5", *DATA, "--kv", "int8,per=chanel", "-o", "none.h5")
with open("config.json", "w") as file:
    file.write('{"preset": "int8", "rules": [{"pattern": "*k_bmm_quantizer", "num_bits": 8}]}')
fails(2, ["--kv goes with --preset", "bmm_quantizer"], "calibrate", "float.h5", *DATA, "--config", "config.json", "--kv", "int8", "-o", "none.h5")
assert "k_bmm_quantizer" in run("calibrate", "float.h5", *DATA, "--config", "config.json", "-o", "rule.h5").stdout
run("train", "--model", "mlp", "--model-options", '{"hidden": [4]}', "--data", os.path.join(SOURCE, "data", "digits.h5"), "--epochs", "1", "-o", "mlp.h5")
fails(2, ["mlp.h5", "next token", "--windows"], "generate", "mlp.h5", "--prompt", "a")
print("generate: ok")
