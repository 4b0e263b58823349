"""Folders of transformers (tests/data/transformers) through the command: imported, compared, fine-tuned quantized, and out as
ONNX, GGUF and safetensors; and rejected input."""

import json
import os
import shutil
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import SOURCE, fails, result, run  # noqa: E402

FOLDERS = os.path.join(SOURCE, "tests", "data", "transformers")


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


def folder(name):
    return os.path.join(FOLDERS, name)


def tensor(name, what):
    """An f32 tensor of the expected outputs."""
    path = os.path.join(folder(name), "answers.safetensors")
    entry = header(path)[what]
    with open(path, "rb") as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(start + entry["data_offsets"][0])
        return np.frombuffer(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]), "<f4").reshape(entry["shape"])


def data(path, x, y):
    with h5py.File(path, "w") as file:
        for split in ("train", "test"):
            file[f"{split}/x"], file[f"{split}/y"] = x, y
    return path


random = np.random.default_rng(0)
windows = random.integers(0, 20, (64, 10))
TEXT = data("text.h5", windows[:, :9], windows[:, 1:])

# Language models: logits, and the steps that the built-in gpt supports.
for name in ("gpt2", "llama", "qwen3"):
    report = result("import", folder(name), "--input-shape", "9", "-o", f"{name}.h5")
    assert report["tokens"] == 20 and report["sample_shape"] == [9], report
    ids = data("ids.h5", tensor(name, "ids").astype(np.int64), np.zeros((3, 9), np.int64))
    run("predict", f"{name}.h5", "--data", ids, "-o", "logits.h5", "--force")
    with h5py.File("logits.h5") as file:
        assert np.abs(file["logits"][...] - tensor(name, "answers")).max() < 2e-5
    run("qat", f"{name}.h5", "--data", TEXT, "--preset", "int8", "--epochs", "1", "-o", f"{name}_int8.h5")
    run("export", f"{name}_int8.h5", "--format", "onnx", "-o", f"{name}.onnx")

# A tokenizer.json in the folder comes along; one that is not read is left out.
shutil.copytree(folder("gpt2"), "with_tokenizer")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
letters = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": BYTES, "decoder": BYTES, "post_processor": None, "truncation": None, "padding": None,
           "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abcdefghijklmnopqrst")}, "merges": []}}
for model, report in ((letters["model"], None), ({"type": "WordPiece"}, "the tokenizer is left out")):
    with open("with_tokenizer/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(letters | {"model": model}, file)
    done = run("import", "with_tokenizer", "--input-shape", "9", "-o", "spoken.h5", "--force")
    assert (report or "") in done.stderr and (report is not None or not done.stderr), done.stderr
    done = run("generate", "spoken.h5", "--prompt", "bade", "--tokens", "3", status=None)
    assert (done.returncode == 0) == (report is None), done
    assert report or set(done.stdout.strip()) <= set("abcdefghijklmnopqrst"), done.stdout

# GPT-2's heads of 4 elements are no blocks of 32; its floats are llama.cpp's all the same.
assert result("export", "gpt2.h5", "--format", "gguf", "-o", "gpt2.gguf")["architecture"] == "gpt2"
assert result("export", "llama.h5", "--format", "gguf", "-o", "llama.gguf")["architecture"] == "llama"

# Names of the file come back.
run("calibrate", "llama.h5", "--data", TEXT, "--preset", "int8_weight_only", "-o", "weights.h5")
os.mkdir("out")
run("export", "weights.h5", "--format", "safetensors", "-o", "out/model.safetensors")
names = set(header("out/model.safetensors"))
index = os.path.join(folder("llama"), "model.safetensors.index.json")
with open(index, encoding="utf-8") as file:
    theirs = set(json.load(file)["weight_map"])
assert theirs <= names, names
assert "model.layers.1.self_attn.o_proj.weight_scale" in names, names

# Without an engine's additions they are ModelOpt's alone.
run("calibrate", "llama.h5", "--data", TEXT, "--preset", "fp8", "--target", "none", "-o", "fp8.h5")
run("export", "fp8.h5", "--format", "safetensors", "-o", "out/", "--force")
linear = {name.removesuffix(".weight") for name in theirs if name.endswith("_proj.weight") or name == "lm_head.weight"}
scales = {f"{name}.{scale}" for name in linear for scale in ("weight_scale", "input_scale")}
names = set(header("out/model.safetensors")) - {"__metadata__"}
assert names == theirs | scales, names ^ (theirs | scales)

# A BERT reads rows of three inputs, or ids alone.
report = result("import", folder("bert_classes"), "--input-shape", "9", "-o", "bert.h5")
assert report["classes"] == 3 and report["sample_shape"] == [27], report
rows = data("rows.h5", tensor("bert_classes", "rows").astype(np.int64), np.array([0, 1, 2]))
run("predict", "bert.h5", "--data", rows, "-o", "bert_logits.h5")
with h5py.File("bert_logits.h5") as file:
    assert np.abs(file["logits"][...] - tensor("bert_classes", "answers")).max() < 2e-5
run("calibrate", "bert.h5", "--data", rows, "--preset", "int8", "-o", "bert_int8.h5")
run("export", "bert_int8.h5", "--format", "onnx", "-o", "bert.onnx")
report = result("import", folder("bert_classes"), "--fix-input", "attention_mask=1", "token_type_ids=0", "-o", "ids.h5", "--force")
assert report["sample_shape"] == [12], report
report = result("import", folder("bert"), "--output-name", "pooler_output", "-o", "pooled.h5")
assert report["classes"] == 8, report

# A file of the folder may be named, and its tensors renamed.
result("import", index, "-o", "by_index.h5")
with open("names.json", "w", encoding="utf-8") as file:
    json.dump({"nothing.*": None}, file)
result("import", os.path.join(folder("gpt2"), "model.safetensors"), "--map", "names.json", "-o", "by_file.h5")

# Bad input.
shutil.copytree(folder("llama"), "bad")
with open("bad/config.json", encoding="utf-8") as file:
    config = json.load(file)


def bad(**changes):
    with open("bad/config.json", "w", encoding="utf-8") as file:
        json.dump({**config, **changes}, file, indent=1)


bad(architectures=["T5ForConditionalGeneration"])
fails(2, ["'T5ForConditionalGeneration'", "LlamaForCausalLM", "BertModel"], "import", "bad", "-o", "none.h5")
bad(rope_parameters={"rope_type": "longrope", "rope_theta": 500.0})
fails(2, ["bad/config.json:", "'longrope'", "llama3"], "import", "bad", "-o", "none.h5")
bad(rope_parameters={"rope_type": "llama3", "rope_theta": 500.0})
fails(2, ["bad/config.json:", "'factor' is missing"], "import", "bad", "-o", "none.h5")
bad(hidden_size=16)
fails(2, ["model.embed_tokens.weight is [20, 8], config.json makes it [20, 16]"], "import", "bad", "-o", "none.h5")
bad(num_hidden_layers=1)
fails(2, ["without a parameter", "model.layers.1.mlp.up_proj.weight", "--map"], "import", "bad", "-o", "none.h5")
bad(num_attention_heads=3)
fails(2, ["self_attn"], "import", "bad", "-o", "none.h5")
bad()
os.remove("bad/model-00002-of-00003.safetensors")
fails(2, ["model-00002-of-00003.safetensors"], "import", "bad", "-o", "none.h5")
fails(2, ["12 positions"], "import", folder("llama"), "--input-shape", "13", "-o", "none.h5")
fails(2, ["number of tokens"], "import", folder("llama"), "--input-shape", "3,3", "-o", "none.h5")
os.mkdir("empty")
fails(2, ["empty"], "import", "empty", "-o", "none.h5")
print("transformers: ok")
