"""Networks of Llama's, Qwen2's and Qwen3's kind as GGUF: names, keys and the order of rows that llama.cpp has, read by the package
`gguf`; imported files: equal bytes before a step, generated text; and rejected input."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np

PYTHON = os.environ["FAKEQUANT_GGUF_PYTHON"]
if not os.path.exists(PYTHON):
    print("SKIPPED: no gguf")
    raise SystemExit(77)
os.environ["FAKEQUANT_PYTHON"] = PYTHON  # which has the package tokenizers
sys.path.insert(0, os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "cli", "lib"))
from command import fails, result, run  # noqa: E402
from llama_folder import HEADS, KV, LAYERS, WIDTH, folder  # noqa: E402

READER = r"""
import sys
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
reader = GGUFReader(sys.argv[1])
out = {f"tensor/{t.name}": dequantize(t.data, t.tensor_type) for t in reader.tensors}
out.update({f"bytes/{t.name}": np.frombuffer(t.data.tobytes(), np.uint8) for t in reader.tensors})
out.update({f"type/{t.name}": t.tensor_type.name for t in reader.tensors})
for name, field in reader.fields.items():
    if not name.startswith("GGUF."):
        out[f"key/{name}"] = np.array(field.contents())
np.savez(sys.argv[2], **out)
"""


def read(file):
    done = subprocess.run([PYTHON, "-c", READER, file, "read.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load("read.npz"))


def part(read, kind):
    return {name[len(kind) + 1:]: value for name, value in read.items() if name.startswith(kind + "/")}


def permuted(weight, heads):
    """convert_hf_to_gguf.py's order of the rows of queries and keys."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def expected_name(name):
    if name.startswith("model.layers."):
        layer, rest = name[len("model.layers."):].split(".", 1)
        module, kind = rest.rsplit(".", 1)
        return f"blk.{layer}.{NAMES[module]}.{kind}"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}[name]


with open("text.txt", "w", encoding="utf-8") as text:
    text.write("To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" * 40)
vocabulary = result("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")["vocabulary"]

for kind, architecture, tied, biases in (("llama", "LlamaForCausalLM", False, False), ("qwen2", "Qwen2ForCausalLM", True, True),
                                         ("qwen3", "Qwen3ForCausalLM", False, False)):
    tensors = folder(kind, architecture, vocabulary, tied, biases)
    run("import", kind, "--input-shape", "16", "-o", f"{kind}.h5")

    # Floats: every tensor in its place, with llama.cpp's names.
    assert result("export", f"{kind}.h5", "--format", "gguf", "-o", f"{kind}.gguf")["architecture"] == kind
    file = read(f"{kind}.gguf")
    found = part(file, "tensor")
    expected = {expected_name(name): value for name, value in tensors.items()}
    if kind == "llama":
        for i in range(LAYERS):
            for name, heads in (("attn_q", HEADS), ("attn_k", KV)):
                expected[f"blk.{i}.{name}.weight"] = permuted(expected[f"blk.{i}.{name}.weight"], heads)
    assert set(found) == set(expected), set(found) ^ set(expected)
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name
    keys = {name: value for name, value in part(file, "key").items() if name.startswith(kind)}
    assert keys[f"{kind}.attention.head_count_kv"] == KV and keys[f"{kind}.rope.dimension_count"] == WIDTH // HEADS, keys
    assert np.float32(keys[f"{kind}.rope.freq_base"]) == 5000 and keys[f"{kind}.block_count"] == LAYERS, keys
    run("import", f"{kind}.gguf", "-o", f"{kind}_back.h5")
    first, second = (result("evaluate", name, "--data", "text.h5") for name in (f"{kind}.h5", f"{kind}_back.h5"))
    assert first["loss"] == second["loss"], (first, second)

    # Codes: the bytes that were trained come back, and go out again.
    for preset in ("q4_0", "q8_0"):
        run("qat", f"{kind}.h5", "--data", "text.h5", "--preset", preset, "--epochs", "1", "--batch", "32", "-o", "trained.h5", "--force")
        run("export", "trained.h5", "--format", "gguf", "-o", f"{kind}_{preset}.gguf")
        report = result("import", f"{kind}_{preset}.gguf", "-o", "back.h5", "--force")
        assert report["quantized"], report
        run("export", "back.h5", "--format", "gguf", "-o", "again.gguf", "--force")
        there, here = (part(read(name), "bytes") for name in (f"{kind}_{preset}.gguf", "again.gguf"))
        assert set(there) == set(here)
        for name in there:
            assert np.array_equal(there[name], here[name]), (preset, name)
        first, second = (result("evaluate", name, "--data", "text.h5") for name in ("trained.h5", "back.h5"))
        assert first["loss"] == second["loss"], (first, second)
    run("qat", "back.h5", "--data", "text.h5", "--epochs", "1", "-o", "more.h5", "--force")

# Ours, of the built-in gpt.
options = '{"layers": 1, "width": 32, "heads": 2, "context": 16}'
run("train", "--data", "text.h5", "--model", "gpt", "--model-options", options, "--epochs", "1", "-o", "gpt.h5")
run("qat", "gpt.h5", "--data", "text.h5", "--preset", "q4_0", "--epochs", "1", "-o", "gpt_q4.h5")
run("export", "gpt_q4.h5", "--format", "gguf", "-o", "gpt.gguf")
run("import", "gpt.gguf", "-o", "gpt_back.h5")
run("export", "gpt_back.h5", "--format", "gguf", "-o", "gpt_again.gguf")
there, here = (part(read(name), "bytes") for name in ("gpt.gguf", "gpt_again.gguf"))
assert set(there) == set(here) and all(np.array_equal(there[name], here[name]) for name in there)

# The tokens come back too: of characters as the data set calls them, of pieces as a tokenizer.json that cuts and joins as the one
# that went out.


def generate_text(checkpoint, prompt):
    return run("generate", checkpoint, "--prompt", prompt, "--tokens", "8", "--temperature", "0").stdout


assert generate_text("gpt_q4.h5", "To be") == generate_text("gpt_back.h5", "To be").replace("gpt_back", "gpt_q4")
run("qat", "gpt_back.h5", "--data", "text.h5", "--epochs", "1", "-o", "gpt_more.h5")
DATA = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "data", "tokenizers")
for kind, architecture, file in (("llama", "LlamaForCausalLM", "llama3.json"), ("qwen2", "Qwen2ForCausalLM", "qwen2.json"),
                                 ("llama", "LlamaForCausalLM", "byte_level.json")):
    name = file.removesuffix(".json") + "_pieces"
    with open(os.path.join(DATA, file), encoding="utf-8") as tokenizer:
        given = json.load(tokenizer)
    folder(name, architecture, max(*given["model"]["vocab"].values(), *(t["id"] for t in given["added_tokens"])) + 1, False, kind == "qwen2")
    shutil.copy(os.path.join(DATA, file), os.path.join(name, "tokenizer.json"))
    run("import", name, "--input-shape", "16", "-o", f"{name}.h5")
    run("export", f"{name}.h5", "--format", "gguf", "-o", f"{name}.gguf")
    run("import", f"{name}.gguf", "-o", f"{name}_back.h5")
    for prompt in ("To be 12345", "isn't  \u00fc\n\n a", "the<|endoftext|>To"):
        assert generate_text(f"{name}.h5", prompt) == generate_text(f"{name}_back.h5", prompt), (name, prompt)
    run("dataset", "from-text", "text.txt", "--windows", "16", "--tokenizer", os.path.join(DATA, file), "-o", "pieces.h5", "--force")
    first, second = (result("evaluate", f"{name}{end}.h5", "--data", "pieces.h5") for end in ("", "_back"))
    assert first["loss"] == second["loss"], (name, first, second)
    run("export", f"{name}_back.h5", "--format", "gguf", "-o", "again.gguf", "--force")
    there, here = (part(read(path), "key") for path in (f"{name}.gguf", "again.gguf"))
    assert all(np.array_equal(there[key], here[key]) for key in there if key.startswith("tokenizer")), name
    assert 3 in there["tokenizer.ggml.token_type"], name
    control = {token["content"]: token["id"] for token in given["added_tokens"]}
    ends = [control[end] for end in ("<|endoftext|>", "<|end_of_text|>") if end in control]
    assert there["tokenizer.ggml.eos_token_id"] == ends[0], name
with open("llama3_pieces.gguf", "rb") as file:
    whole = file.read()
for was, becomes, expected_text in ((b"llama-bpe", b"other-bpe", "the words of 'other-bpe' are unsupported"),
                           (b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0bert", "its tokenizer is 'bert'"),
                           (b"\4\0\0\0\0\0\0\0gpt2", b"\5\0\0\0\0\0\0\0llama", "sentencepiece, pieces with scores")):
    assert was in whole
    changed = whole.replace(was, becomes)
    if len(changed) != len(whole):  # later bytes must not move
        changed = changed.replace(b"\t\0\0\0\0\0\0\0llama-bpe", b"\b\0\0\0\0\0\0\0llama-bp")
    assert len(changed) == len(whole)
    with open("strange.gguf", "wb") as file:
        file.write(changed)
    warned = run("import", "strange.gguf", "-o", "strange.h5", "--force").stderr
    assert expected_text in warned and "left out" in warned, warned
    assert "tokenizer is" not in expected_text or "dataset from-text --tokenizer" in warned, warned

# Files of other kinds, and tensors that no grid can represent.
with open("llama_q4_0.gguf", "rb") as file:
    whole = file.read()
for length in (3, 40, 4000, len(whole) - 1):
    with open("cut.gguf", "wb") as file:
        file.write(whole[:length])
    fails(2, ["cut.gguf"], "import", "cut.gguf", "-o", "none.h5")
with open("other.gguf", "wb") as file:
    file.write(whole.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
fails(2, ["the architecture is 'mamba'", "gpt2, llama, qwen2, qwen3"], "import", "other.gguf", "-o", "none.h5")
with open("keys.gguf", "wb") as file:
    file.write(whole.replace(b"llama.block_count", b"llama.block_cound"))
fails(2, ["the key 'llama.block_count' is missing"], "import", "keys.gguf", "-o", "none.h5")
with open("names.gguf", "wb") as file:
    file.write(whole.replace(b"blk.0.ffn_up.weight", b"blk.0.ffn_uq.weight"))
fails(2, ["blk.0.ffn_up.weight is missing", "blk.0.ffn_uq.weight is unknown"], "import", "names.gguf", "-o", "none.h5")
EDIT = r"""
import sys
import numpy as np
from gguf import GGUFReader
reader = GGUFReader(sys.argv[1], "r+")
tensor = next(t for t in reader.tensors if t.name == "blk.1.ffn_up.weight")
tensor.data[0, 2:18] = 0x99  # codes of 1 alone, as an importance matrix may give: ggml's own quantizer gives one of them -8
tensor.data[1, 2:18] = 0x1F  # codes 7 and -7
reader.data.flush()
"""
with open("blocks.gguf", "wb") as file:
    file.write(whole)
done = subprocess.run([PYTHON, "-c", EDIT, "blocks.gguf"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
run("import", "blocks.gguf", "-o", "blocks.h5")
run("export", "blocks.h5", "--format", "gguf", "-o", "again.gguf", "--force")
there, here = (part(read(name), "bytes") for name in ("blocks.gguf", "again.gguf"))
assert all(np.array_equal(there[name], here[name]) for name in there)
