"""fakequant dataset from-text --tokenizer: ids of a tokenizer.json, which data set and checkpoint keep; a gpt of them, whose
bits are per character; generated texts; an encoder on padded texts; and rejected input."""

import json
import os
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import SOURCE, english, fails, result, run  # noqa: E402
from crash import kill_and_resume  # noqa: E402

FILES = os.path.join(SOURCE, "tests", "data", "tokenizers")
with open(os.path.join(FILES, "ids.json"), encoding="utf-8") as file:
    ANSWERS = json.load(file)
TEXT = english(6000)
with open("text.txt", "w", encoding="utf-8") as file:
    file.write(TEXT)


def windows(tokenizer, out, *more, text="text.txt", length=8):
    return ["dataset", "from-text", text, "--windows", str(length), "--tokenizer", tokenizer, "-o", out, *more]


def tokenizer_path(name):
    return os.path.join(FILES, name + ".json")


# The ids equal those of the package: all of a text, except tails shorter than a window.
sample = ANSWERS["byte_level"][0]
with open("sample.txt", "w", encoding="utf-8") as file:
    file.write(sample["text"])
found = result(*windows(tokenizer_path("byte_level"), "sample.h5", "--test", "0", text="sample.txt"))
assert found["tokens"] == len(sample["ids"]) and found["vocabulary"] == 385, found
with h5py.File("sample.h5") as file:
    x, y = file["train/x"][...], file["train/y"][...]
    assert file.attrs["tokens"] == "pieces" or file.attrs["tokens"] == b"pieces", file.attrs["tokens"]
    kept = json.loads(bytes(file["tokenizer"][...]))
with open(tokenizer_path("byte_level"), encoding="utf-8") as file:
    assert kept == json.load(file)
assert np.array_equal(x.ravel(), sample["ids"][:x.size]) and np.array_equal(y.ravel(), sample["ids"][1:x.size + 1])

# A network on tokens: bits per character are fewer than per token, and tokens are printed as text.
GPT = ["--model", "gpt", "--model-options", '{"layers": 1, "width": 16, "heads": 2, "context": 8, "tied": true}',
       "--epochs", "1", "--batch", "8", "--seed", "1"]
for name in ("byte_level", "llama", "unigram"):
    run(*windows(tokenizer_path(name), f"{name}.h5"))
    run("train", *GPT, "--data", f"{name}.h5", "-o", f"{name}_float.h5")
    scores = result("evaluate", f"{name}_float.h5", "--data", f"{name}.h5", "--metrics", "bpc,perplexity")["metrics"]
    with h5py.File(f"{name}.h5") as file:
        labels = file["test/y"][...].ravel()
    per_token = np.log2(scores["perplexity"])
    assert scores["bpc"] < per_token, (name, scores)
    if name == "byte_level":
        with open(tokenizer_path(name), encoding="utf-8") as file:
            model = json.load(file)
        tokens = {i: t for t, i in model["model"]["vocab"].items()}
        # Each character of the alphabet is a byte; the README's few others begin with one byte of 0xc0 or more.
        from_bytes = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or b >= 0xae]
        rest = [b for b in range(256) if b not in from_bytes]
        byte = {chr(b): b for b in from_bytes} | {chr(0x100 + i): b for i, b in enumerate(rest)}
        count = sum(byte[c] & 0xc0 != 0x80 for i in labels for c in tokens[i])
        assert abs(scores["bpc"] * count - per_token * len(labels)) < 1e-3 * count, (scores, count, len(labels))
    message = result("generate", f"{name}_float.h5", "--prompt", "The text", "--tokens", 20, "--seed", 3)["texts"][0]
    assert message.startswith("The text"), message
# A tied table counts once, 4 bytes a number; read as codes too, it is there as both.
counted = result("inspect", "byte_level_float.h5")
assert counted["weight_bytes"] == 4 * counted["parameters"], counted
run("calibrate", "byte_level_float.h5", "--data", "byte_level.h5", "--preset", "int8", "-o", "int8.h5")
assert result("generate", "int8.h5", "--prompt", "The text", "--tokens", 5)["texts"][0].startswith("The text")

# Killed and resumed it is the same network, its table tied and averaged, dropout and all.
kill_and_resume(["train", *GPT[:4], "--batch", "8", "--seed", "1", "--data", "byte_level.h5", "--epochs", "2", "--ema", "0.99"], 2)

# More data by the same tokenizer, and texts of a class each, filled with the token for it.
run("dataset", "from-text", "text.txt", "--windows", "8", "--like", "llama.h5", "-o", "more.h5")
result("evaluate", "llama_float.h5", "--data", "more.h5")
with open("texts.csv", "w", encoding="utf-8") as file:
    file.write("text,label\n" + "".join(f"{'good' if i % 2 else 'bad'} number {i},{i % 2}\n" for i in range(40)))
CSV = ["dataset", "from-text", "texts.csv", "--text", "text", "--label", "label", "--length", "16"]
run(*CSV, "--tokenizer", tokenizer_path("unigram"), "-o", "classes.h5")
with h5py.File("classes.h5") as file:
    assert (file["train/x"][:, -1] == 0).all()  # <pad>
ENCODER = ["--model", "encoder", "--model-options", '{"layers": 1, "width": 16, "heads": 2, "vocabulary": 384}']
run("train", *ENCODER, "--data", "classes.h5", "--epochs", "1", "--batch", "8", "-o", "encoder.h5")
fails(2, ["no padding token", "--length"], *CSV, "--tokenizer", tokenizer_path("llama"), "-o", "none.h5")

# Any tokenizer of the package: words of pieces, as BERT has them.
letters = [chr(code) for code in range(33, 127)]
pieces = ["[UNK]", *letters, *("##" + letter for letter in letters)]
with open("wordpiece.json", "w", encoding="utf-8") as file:
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
               "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
               "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                         "vocab": {piece: number for number, piece in enumerate(pieces)}}}, file)
run(*windows("wordpiece.json", "wordpiece.h5"))
run("train", *GPT, "--data", "wordpiece.h5", "-o", "wordpiece_float.h5")
message = result("generate", "wordpiece_float.h5", "--prompt", "The text, here", "--tokens", 0)["texts"][0]
assert message == "The text, here", message

# Rejected input.
shutil.copy("byte_level.h5", "other.h5")
fails(2, ["another vocabulary", "--tokenizer"], "evaluate", "byte_level_float.h5", "--data", "llama.h5")
run("dataset", "from-text", "text.txt", "--windows", "8", "-o", "characters.h5")
fails(2, "another vocabulary", "evaluate", "byte_level_float.h5", "--data", "characters.h5")
run(*CSV, "-o", "bytes.h5")
fails(2, ["tokenizer.json", "bytes.h5"], "evaluate", "encoder.h5", "--data", "bytes.h5")
fails(2, ["--like", "leave one out"], *windows(tokenizer_path("llama"), "none.h5", "--like", "byte_level.h5"))
fails(2, "--tokens", *windows(tokenizer_path("llama"), "none.h5", "--tokens", "bytes"))
fails(2, "no_such.json", *windows("no_such.json", "none.h5"))
with open(tokenizer_path("llama"), encoding="utf-8") as file:
    whole = file.read()
with open("cut.json", "w", encoding="utf-8") as file:
    file.write(whole[:len(whole) // 2])
fails(2, ["cut.json", "not a tokenizer.json"], *windows("cut.json", "none.h5"))
with open("bad.json", "w", encoding="utf-8") as file:
    file.write('{"model": {"type": "Other", "vocab": {}}}')
fails(2, ["bad.json", "not a tokenizer.json"], *windows("bad.json", "none.h5"))
with h5py.File("other.h5", "r+") as file:
    del file["tokenizer"]
fails(2, "tokenizer", "dataset", "from-text", "text.txt", "--windows", "8", "--like", "other.h5", "-o", "none.h5")
assert not os.path.exists("none.h5")

# Steps that multiply a text end before they take memory.
tree = json.loads(whole)
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
with open("a.txt", "w") as file:
    file.write("a" * 1000)
for key, steps in [
        ("normalizer", {"type": "Sequence", "normalizers": [REPLACE] * 12}),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [REPLACE] * 2}] * 9}),
        ("normalizer", {**REPLACE, "content": "a" * 10**6}),
        ("normalizer", {**REPLACE, "pattern": {"Regex": "a"}, "content": "a" * 10**6}),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 10**5}] * 90}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 60})]:
    with open("bomb.json", "w") as file:
        json.dump({**tree, key: steps, "added_tokens": []}, file)
    line = fails(2, ["bomb.json", key, "64 times"], *windows("bomb.json", "none.h5", text="a.txt"), limits="ulimit -v 4000000")
    assert "memory" not in line, line
print("tokenizers: ok")
