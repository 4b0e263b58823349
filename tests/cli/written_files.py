"""No command overwrites its input or replaces a file of another kind: every command, every flag that names a
file, every way of naming one twice. A flag that names a file and is not in COMMANDS fails this test."""

import glob
import json
import os
import re
import shutil
import struct
import sys
import zlib

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, SOURCE, fails, run  # noqa: E402

# Inputs of the commands.
run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "fp8", "-o", "fp8.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--target", "tensorrt", "-o", "trt.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--samples", "64", "--state", "state.h5")
run("sensitivity", "float.h5", "--data", DIGITS, "--samples", "64", "--effective-bits", "6", "--plan", "plan.json")
run("export", "fp8.h5", "--format", "safetensors", "-o", "packed/")
has_onnx = run("export", "float.h5", "--format", "onnx", "-o", "float.onnx").returncode == 0
shutil.copy("float.h5", "teacher.h5")
shutil.copy(DIGITS, "digits.h5")
shutil.copy(os.path.join(SOURCE, "models", "digits_cnn.json"), "model.json")
with open("training.json", "w") as file:
    json.dump({"training": {"clip_norm": 1}}, file)
with open("config.json", "w") as file:
    json.dump({"preset": "int8"}, file)
with open("base.json", "w") as file:
    json.dump({"target": "ort"}, file)
with open("recipe.json", "w") as file:
    json.dump({"data": "digits.h5", "phases": [{"command": "evaluate", "checkpoint": "float.h5"}]}, file)

np.save("x.npy", np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
np.save("y.npy", np.arange(20) % 2)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


for index, kind in enumerate(["odd", "even"] * 4):
    os.makedirs(f"pictures/{kind}", exist_ok=True)
    with open(f"pictures/{kind}/{index}.png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress(bytes([0, 1, 2, 0, 3, index]))) + chunk(b"IEND", b""))
with open("images.idx", "wb") as file:
    file.write(bytes([0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(range(80)))
with open("labels.idx", "wb") as file:
    file.write(bytes([0, 0, 8, 1, 0, 0, 0, 20]) + bytes(i % 2 for i in range(20)))
with open("table.csv", "w") as file:
    file.write("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
for name, texts in (("texts.txt", ["one", "two"]), ("kinds.txt", ["odd", "even"])):
    with open(name, "w") as file:
        file.write("".join(f"{texts[i % 2]}\n" for i in range(20)))
for name in ("x.npy", "y.npy", "images.idx", "labels.idx", "table.csv", "texts.txt", "kinds.txt"):
    shutil.copy(name, "test_" + name)
shutil.copy(os.path.join(SOURCE, "tests", "data", "tokenizers", "byte_level.json"), "tokenizer.json")
run("dataset", "from-text", "texts.txt", "--labels", "kinds.txt", "-o", "like.h5")
run("dataset", "from-npy", "x.npy", "--labels", "y.npy", "--classes", "odd,even", "-o", "names.h5")
run("dataset", "from-idx", "images.idx", "--labels", "labels.idx", "--classes", "even,odd", "-o", "pixels.h5")
run("dataset", "from-csv", "table.csv", "--task", "none", "-o", "table.h5")

with open("small.json", "w") as file:
    json.dump([{"type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}], file)
with open("names.json", "w") as file:
    json.dump({"w": "fc.weight", "b": "fc.bias"}, file)
header = json.dumps({"w": {"dtype": "F32", "shape": [10, 64], "data_offsets": [0, 2560]},
                     "b": {"dtype": "F32", "shape": [10], "data_offsets": [2560, 2600]}}).encode()
with open("weights.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + bytes(2600))
WEIGHTS = {"model": "small.json", "init": "weights.safetensors", "map": "names.json", "data": "digits.h5"}

TRAIN = ["--epochs", "1", "--val-fraction", "0.2", "--samples", "64"]
# Command: arguments, flags of inputs, and outputs: by flag, its value and its files.
COMMANDS = [
    ("train", TRAIN[:4], {"model": "model.json", "data": "digits.h5", "config": "training.json"},
     {"output": ("t.h5", ["t.h5", "t.best.h5"]), "profile": ("t.json", ["t.json"])}),
    ("train", TRAIN[:4], {"checkpoint": "float.h5", "data": "digits.h5", "teacher": "teacher.h5"},
     {"output": ("run.1", ["run.1", "run.1.best.h5"]), "profile": (None, ["run.1.profile.json"])}),
    ("train", TRAIN[:4], WEIGHTS, {"output": ("ti.h5", ["ti.h5", "ti.best.h5"])}),
    ("calibrate", ["--samples", "64"], WEIGHTS, {"output": ("ci.h5", ["ci.h5"])}),
    ("qat", [*TRAIN, "--preset", "int8"], WEIGHTS, {"output": ("qi.h5", ["qi.h5", "qi.best.h5"])}),
    ("import", ["--input-shape", "1,8,8", "--classes", "10"],
     {"model": "weights.safetensors", "network": "small.json", "map": "names.json"}, {"output": ("iw.h5", ["iw.h5"])}),
    ("import", [], {"model": "float.onnx"}, {"output": ("i.h5", ["i.h5"])}),
    ("fold", [], {"checkpoint": "float.h5", "data": "digits.h5"}, {"output": ("f.h5", ["f.h5"])}),
    ("calibrate", ["--samples", "64"], {"checkpoint": "float.h5", "data": "digits.h5", "config": "config.json"},
     {"output": ("c.h5", ["c.h5"]), "state": ("s.h5", ["s.h5"])}),
    ("calibrate", [], {"checkpoint": "float.h5", "merge": "state.h5"}, {"output": ("m.h5", ["m.h5"])}),
    ("calibrate", ["--preset", "fp8", "--keep-bn"], {"checkpoint": "float.h5", "import": "ranges.safetensors", "data": "digits.h5"},
     {"output": ("r.h5", ["r.h5"])}),
    ("sensitivity", ["--samples", "64"], {"checkpoint": "int8.h5", "data": "digits.h5"},
     {"report": ("sens.json", ["sens.json"])}),
    ("sensitivity", ["--samples", "64", "--effective-bits", "6"],
     {"checkpoint": "float.h5", "data": "digits.h5", "config": "base.json"},
     {"plan": ("p.json", ["p.json"]), "output": ("p.h5", ["p.h5"])}),
    ("qat", TRAIN, {"checkpoint": "float.h5", "data": "digits.h5", "config": "config.json", "teacher": "teacher.h5"},
     {"output": ("q.h5", ["q.h5", "q.best.h5"]), "profile": ("q.json", ["q.json"])}),
    ("evaluate", [], {"checkpoint": "int8.h5", "data": "digits.h5"}, {}),
    ("predict", [], {"checkpoint": "int8.h5", "data": "digits.h5"}, {"output": ("pred.h5", ["pred.h5"])}),
    ("compress", [], {"checkpoint": "int8.h5"}, {"output": ("z.h5", ["z.h5"])}),
    ("export", ["--format", "scales"], {"checkpoint": "int8.h5", "data": "digits.h5"},
     {"output": ("e", ["e_scales.json", "e_scales.h5"])}),
    ("export", ["--format", "onnx"], {"checkpoint": "int8.h5"}, {"output": ("e.onnx", ["e.onnx"])}),
    ("export", ["--format", "trt-cache"], {"checkpoint": "trt.h5"}, {"output": ("e.cache", ["e.cache"])}),
    ("export", ["--format", "gguf"], {"checkpoint": "float.h5"}, {"output": ("e.gguf", ["e.gguf"])}),
    ("export", ["--format", "safetensors"], {"checkpoint": "fp8.h5"},
     {"output": ("e.safetensors", ["e.safetensors", "hf_quant_config.json"])}),
    ("inspect", ["--calibration", "--samples", "64"],
     {"file": "float.h5", "data": "digits.h5", "plan": "plan.json", "config": "config.json"},
     {"html": ("page.html", ["page.html"])}),
    ("inspect", ["--calibration", "--preset", "int8"], {"file": "float.h5", "state": "state.h5"},
     {"html": ("page2.html", ["page2.html"])}),
    ("dataset from-npy", [], {"file": "x.npy", "labels": "y.npy", "test-file": "test_x.npy", "test-labels": "test_y.npy", "like": "names.h5"},
     {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-idx", [], {"file": "images.idx", "labels": "labels.idx", "test-file": "test_images.idx",
                              "test-labels": "test_labels.idx", "like": "pixels.h5"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-csv", ["--label", "b"], {"file": "table.csv", "test-file": "test_table.csv"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-csv", ["--task", "none"], {"file": "table.csv", "like": "table.h5"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-text", [], {"file": "texts.txt", "labels": "kinds.txt", "test-file": "test_texts.txt",
                               "test-labels": "test_kinds.txt", "like": "like.h5"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-text", ["--windows", "4"], {"file": "texts.txt", "tokenizer": "tokenizer.json"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset from-images", ["--folder=pictures"], {"like": "pixels.h5"}, {"output": ("d.h5", ["d.h5"])}),
    ("dataset show", [], {"file": "digits.h5"}, {"output": ("sheet.png", ["sheet.png"]), "html": ("show.html", ["show.html"])}),
    ("run", [], {"recipe": "recipe.json", "data": "digits.h5"}, {"report": ("report.json", ["report.json"])}),
]
# Commands not run here: they write no files, or name a folder whose phases are checked.
ELSEWHERE = {"evaluate": set(), "generate": {"checkpoint", "python"}, "verify": {"model", "data", "checkpoint", "python", "engines"},
             "export": {"python", "engines"}, "run": {"output", "model"},
             "dataset from-parquet": {"file", "test-file", "like", "output"}, "dataset from-images": {"folder"},
             "dataset check": {"file"}, "compare": {"html"}}


def files_in_help(command):
    return set(re.findall(r"--([\w-]+)(?: \])? (?:\[=)?(?:FILE|FOLDER|OUTPUT)", run(*command.split(), "--help").stdout))


def listed_kinds(text):
    return re.findall(r"^  ([a-z]+(?: [a-z-]+)?) {2,}\S", text, re.M)


listed = {}
for command, _, read, written in COMMANDS:
    listed.setdefault(command, set()).update(read, written)
commands = [command for command in listed_kinds(run("--help").stdout) if not command.startswith(("fakequant", "dataset"))]
for command in commands + [command for command in listed_kinds(run("dataset", "--help").stdout) if command.startswith("dataset")]:
    known = listed.get(command, set()) | ELSEWHERE.get(command, set())
    if command.startswith("dataset from-"):
        known.add("python")
    assert files_in_help(command) == known, f"{command}: {files_in_help(command) ^ known} are not tested"

# Ranges as of ModelOpt.
header = json.dumps({"conv1.input_quantizer._amax": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}).encode()
with open("ranges.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.0))

FOREIGN = {"notes.txt": b"what I found out\n", "image.png": b"\x89PNG\r\n\x1a\n" + bytes(64),
           "other.onnx": b"\x08\x08\x12\x07pytorch\x3a\x00", "own.json": b'{"preset": "int8"}',
           "own.safetensors": open("ranges.safetensors", "rb").read(), "data.h5": open(DIGITS, "rb").read(),
           "raw.bin": bytes(range(256)), "cut.h5": open("float.h5", "rb").read()[:700]}


def arguments(command, more, read, written, replaced=None, by=None):
    """The command line; the value of one flag may be another."""
    line = [*command.split(), *more]
    for flag, value in {**read, **{flag: value for flag, (value, _) in written.items()}}.items():
        value = by if flag == replaced else value
        line.append(f"--{flag}={value}" if value is not None else f"--{flag}")
    return line


def read_bytes(path):
    with open(path, "rb") as opened:
        return opened.read()


def clear(paths):
    for path in paths:
        if os.path.lexists(path):
            os.remove(path)


def file_names(target):
    """Names of one file; a link exists until the next one is requested."""
    yield from (target, "./" + target)
    os.symlink(target, "symbolic")
    yield "symbolic"
    os.remove("symbolic")
    os.link(target, "hard")
    yield "hard"
    os.remove("hard")


cases = 0
for command, more, read, written in COMMANDS:
    if "onnx" in str((more, read)) and not has_onnx:
        continue
    line = arguments(command, more, read, written)
    everything = [path for _, paths in written.values() for path in paths]
    before = set(glob.glob("**", recursive=True))
    done = run(*line)
    made = set(glob.glob("**", recursive=True)) - before
    assert made == set(everything), f"{line}: wrote {made}, not {everything}\n{done.stdout}"
    first = [read_bytes(path) for path in everything]
    run(*line)  # its own files are replaced
    assert not glob.glob(".*fakequant*"), glob.glob(".*fakequant*")

    for flag, (value, paths) in written.items():
        for path in paths:
            # The input, under the name of the output.
            for reading, source in read.items():
                contents = read_bytes(source)
                clear([path])
                for make in (os.symlink, os.link):
                    make(source, path)
                    fails(2, [f"--{flag}", f"--{reading}", source], *line, "--force")
                    clear([path])
                    cases += 1
                assert read_bytes(source) == contents
            # The output, under the name of the input.
            if value == path:
                for reading, source in read.items():
                    for name in file_names(source):
                        fails(2, [f"--{flag}", f"--{reading}"], *arguments(command, more, read, written, flag, name))
                        cases += 1
            # Files of others.
            for name, contents in list(FOREIGN.items())[:None if path == paths[0] else 2]:
                with open(path, "wb") as opened:
                    opened.write(contents)
                fails(2, [f"--{flag}", path, "--force"], *line)
                assert read_bytes(path) == contents
                cases += 1
            clear(paths)
    # Two outputs in one file.
    values = [(flag, value) for flag, (value, paths) in written.items() if value == paths[0]]
    for (flag, value), (other, _) in zip(values, values[1:]):
        fails(2, [f"--{flag}", f"--{other}", "both"], *arguments(command, more, read, written, other, "./" + value))
    # --force replaces any file, and an empty file has no kind.
    clear(everything)
    for index, path in enumerate(everything):
        with open(path, "wb") as opened:
            opened.write(b"" if index % 2 else FOREIGN["notes.txt"])
    if everything and "s.h5" not in everything:
        run(*line, "--force")
        assert [read_bytes(path)[:4] for path in everything] == [contents[:4] for contents in first]
    clear(everything)
    # Outputs that cannot be written are reported before anything runs.
    for flag, (value, paths) in written.items():
        if value not in paths:
            continue
        os.makedirs("folder", exist_ok=True)
        clear(["loop"])
        os.symlink("loop", "loop")
        for name in ("nowhere/x", "folder", "loop", "x" * 300, "float.h5/x", "folder/"):
            if name.startswith("folder") and (command == "export" or flag == "output" and command in ("train", "qat")):
                continue  # a folder is where it writes
            done = run(*arguments(command, more, read, written, flag, name), status=2)
            assert done.stderr.startswith("fakequant: [") and done.stderr.count("\n") == 1, done.stderr
            assert done.stdout == "" and "filesystem error" not in done.stderr, (line, name, done.stdout, done.stderr)
            cases += 1
        clear(["loop"])

# An input name that leads nowhere is reported in one line.
os.symlink("loop", "loop")
for command, more, read, written in COMMANDS:
    for flag in read:
        for name in ("loop", "x" * 300):
            line = arguments(command, more, {**read, flag: name}, {})
            line += [f"--output={'o/' if command == 'export' else 'o.h5'}"] if "output" in written else []
            error = fails(2, "", *line)
            assert "filesystem error" not in error, (line, error)

# A run is resumed in its own checkpoint.
run("qat", "int8.h5", "--data", DIGITS, "--epochs", "1", "-o", "mine.h5")
run("qat", "mine.h5", "--data", DIGITS, "--epochs", "2", "--resume", "-o", "mine.h5")
fails(2, ["--output", "--checkpoint"], "qat", "mine.h5", "--data", DIGITS, "--epochs", "2", "-o", "mine.h5")
# A recipe is checked whole before its first phase.
with open("over.json", "w") as file:
    json.dump({"data": "digits.h5", "output": ".", "phases": [
        {"command": "train", "model": "cnn", "epochs": 1, "output": "new.h5"},
        {"command": "fold", "checkpoint": "new.h5", "output": "over.json"}]}, file)
for more in ([], ["--force"]):
    fails(2, ["over.json", "--recipe"], "run", "over.json", *more)
# The best epoch and the trace cannot be written next to a device; names that differ after a dot are different.
run("train", *SHORT, "--val-fraction", "0.2", "-o", "/dev/null")
assert not glob.glob("/dev/null?*")
fails(2, ["--profile=FILE", "/dev/null"], "train", *SHORT, "--profile", "-o", "/dev/null")
for form, checkpoint in (("scales", "int8.h5"), ("safetensors", "fp8.h5")):
    fails(2, ["/dev/null", form], "export", checkpoint, "--format", form, "-o", "/dev/null")
assert not glob.glob("/dev/null?*") and not os.path.exists("/dev/hf_quant_config.json")
print(f"{cases} files were left alone")
