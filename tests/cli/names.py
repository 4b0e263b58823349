"""Names hold anything but '/': commands take them, print them so that no terminal obeys them, and write valid JSON."""

import json
import os
import shutil
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, TINY, run  # noqa: E402

NAMES = [b"\x1b[31mred", b"caf\xe9", "\u009b2Jclear".encode(), "txt.\u202eh5".encode(), b"bell\x07\r\x7f", b"\xff\xfe\xc0\x80",
         "caf\u00e9 \u4e2d".encode()]
FORBIDDEN = set(map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)])) - {"\n"}


def clean(done):
    """Checks that the output has no control sequences for a terminal."""
    for text in (done.stdout, done.stderr):
        assert not FORBIDDEN & set(text), repr(text)
    return done


def machine(*arguments):
    lines = clean(run(*arguments, "--json")).stdout.splitlines()
    assert all(line.isascii() for line in lines)
    return [json.loads(line) for line in lines]


def call(command, *arguments, run_it=machine, **more):
    """Bytes as the system hands them to a program."""
    return run_it(command, *(os.fsdecode(word) if isinstance(word, bytes) else word for word in arguments), **more)


def chunk(kind, contents):
    return struct.pack(">I", len(contents)) + kind + contents + struct.pack(">I", zlib.crc32(kind + contents))


PICTURE = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(
    b"IDAT", zlib.compress(b"\0\7")) + chunk(b"IEND", b"")
run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
run("export", "float.h5", "--format", "onnx", "-o", "float.onnx")
for index, name in enumerate(NAMES):
    os.makedirs(name + b".d")
    at = name + b".d/" + name
    data = at + b"_data.h5"
    shutil.copy(DIGITS.encode(), data)
    shutil.copy("float.onnx", at + b".onnx")
    call("train", *TINY, "--epochs", "1", "--val-fraction", "0.2", "--profile", "--data", data, "-o", at + b".h5")
    call("calibrate", at + b".h5", "--data", data, "--state", at + b"_s.h5", "-o", at + b"_8.h5")
    call("calibrate", at + b".h5", "--data", data, "--state", at + b"_s.h5", "-o", at + b"_8.h5", run_it=run)
    result = call("evaluate", at + b"_8.h5", "--data", data)[-1]
    assert result["checkpoint"].endswith("_8.h5") and result["count"] == 360, result
    call("import", at + b".onnx", "-o", at + b"_i.h5")
    call("evaluate", at + b"_i.h5", "--data", data)
    call("inspect", at + b"_i.h5")
    call("inspect", "--calibration", at + b"_8.h5", "--html", at + b".html")
    with open(at + b".html", encoding="utf-8") as page:
        assert "<title>" in page.read()
    call("predict", at + b"_8.h5", "--data", data, "-o", at + b"_p.h5")
    call("export", at + b"_8.h5", "-o", at)
    call("export", at + b"_8.h5", "--format", "onnx", "-o", at + b"_e.onnx")
    with open("recipe.json", "w") as file:
        json.dump({"data": "d.h5", "phases": [{"command": "evaluate", "checkpoint": os.path.abspath("int8.h5")}]}, file)
    call("run", "recipe.json", "--data", data, "--report", at + b"_report.json")
    with open(at + b"_report.json", encoding="utf-8") as file:
        json.load(file)
    for run_it in (lambda *words: clean(run(*words)), machine):
        call("sensitivity", at + b"_8.h5", "--data", data, "--samples", "32", "--report", at + b"_r.json", run_it=run_it)
    os.makedirs(at + b".pictures/" + name)
    with open(at + b".pictures/" + name + b"/" + name + b".png", "wb") as file:
        file.write(PICTURE)
    with open(at + b".pictures/" + name + b"/cut.png", "wb") as file:
        file.write(PICTURE[:-20])
    result = call("dataset", "from-images", at + b".pictures", "-o", at + b"_p.h5", "--test", "0", "--force")[-1]
    assert result["groups"] == {"train": 1} and result["left_out"] == 1, result
    clean(call("dataset", "from-images", at + b".pictures", "-o", at + b"_p.h5", run_it=run))
    clean(call("dataset", "show", at + b"_p.h5", "-o", at + b"_p.png", "--html", at + b"_p.html", run_it=run))
    call("dataset", "check", data)
    error = clean(call("evaluate", at + b"_none.h5", "--data", data, run_it=run, status=2)).stderr
    assert error.startswith("fakequant: [") and error.count("\n") == 1, error
    error = clean(call("train", "--model", at, "--data", data, "-o", at + b".h5", run_it=run, status=2)).stderr
    assert error.startswith("fakequant: [") and error.count("\n") == 1, error
    assert not [left for left in os.listdir(name + b".d") if b"fakequant-" in left]

# Names in files.
for layer in ("a\u001b]0;title\u0007", "b\u009b31m", "c\u202e"):
    with open("model.json", "w") as file:
        json.dump({"nodes": [{"name": "flat", "type": "flatten"}, {"name": layer, "type": "linear",
                                                                    "options": {"in_features": 64, "out_features": 10}}]}, file)
    words = ["train", "--model", "model.json", "--data", DIGITS, "--epochs", "1", "-o", "named.h5"]
    done = clean(run(*words, status=None))
    if done.returncode == 0:
        for more in (["inspect", "named.h5"], ["calibrate", "named.h5", "--data", DIGITS, "-o", "named8.h5"],
                     ["inspect", "--calibration", "named8.h5"], ["export", "named8.h5", "-o", "named_"]):
            clean(run(*more))
            machine(*more)
    else:
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
print("names: ok")
