"""verify --engine: the engine of each file, missing parts, and engines that crash, hang or print garbage."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, SOURCE, fails, result, run, same_bytes  # noqa: E402
from engine import program, right_report, write  # noqa: E402

os.environ.pop("FAKEQUANT_PYTHON", None)
run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--target", "openvino", "-o", "openvino.h5")
for name in ["int8", "openvino"]:  # which reads the files of ort
    run("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}.onnx")
assert same_bytes("int8.onnx", "openvino.onnx")
FILES = {"ort": "net.onnx", "openvino": "net.onnx", "xnnpack": "net.pte", "llama.cpp": "net.gguf"}
for name in FILES.values():
    write(name, "any file: the stand-in reads none")


def verify(engine, model, *more):
    return ["verify", model, "--engine", engine, "--checkpoint", "int8.h5", "--data", DIGITS, *more]


# Names, and files that no engine takes.
fails(2, ["--engine", "openvino"], *verify("openvin", "net.onnx"))
fails(2, ["no engine runs", ".onnx, .gguf or .pte"], *verify("all", DIGITS))
for engine, model in [("xnnpack", "none.pte"), ("llama.cpp", "none.gguf")]:
    fails(2, ["is not a file", "fakequant export --format"], *verify(engine, model))
fails(2, ["quantized for ort", "--preset int8_dynamic"], *verify("ort_dynamic", "net.onnx", "--python", "python3"))
for flag in ["--flip-tolerance", "--code-tolerance"]:
    fails(2, flag, *verify("openvino", "net.onnx", flag, "2"))

# An engine that cannot be installed: one line with the reason and the remedies.
broken = program("broken", "echo no venv here >&2; exit 1")
os.environ["PATH"], path = os.path.abspath("bin") + ":" + os.environ["PATH"], os.environ["PATH"]
os.mkdir("bin")
os.link("broken", "bin/python3")
line = run(*verify("openvino", "net.onnx", "--engines", "engines"), status=1).stderr
assert line.count("\n") == 1 and "engine openvino: " in line and "no venv here" in line and "--engines" in line, line
os.environ["PATH"] = path

# Failures of every engine process; the arguments of the Python.
ENDS = {"exit 0": "ended with status 0 and wrote no report", "kill -11 $$": "was ended by signal 11",
        'echo "garbage" > "$json"; exit 0': "is not JSON"}
for engine, model in FILES.items():
    for lines, expected in ENDS.items():
        fails(1, expected, *verify(engine, model, "--python", program("ends", lines)))
    hung = run(*verify(engine, model, "--python", program("hung", "exec sleep 100"), "--timeout", "1"), status=1).stderr
    assert "was still running after 1 s" in hung, hung
    reported = program("told", 'printf "%s\\n" "$@" > words; exit 0')
    run(*verify(engine, model, "--python", reported, "--flip-tolerance", "0.5"), status=1)
    with open("words") as file:
        words = file.read().splitlines()
    assert "--flip-tolerance=0.5" in words and model in words, words
    assert any(word.startswith("--home=") for word in words) == (engine != "ort"), words
    assert any(word.startswith("--layers=") for word in words) == (engine in ("xnnpack", "llama.cpp")), words

# A report is accepted if its counts match its verdict; outputs have their own tolerance.
reporter = program("reporter", 'cp report.json "$json"; exit $(cat status)')
right = right_report("int8.h5")
write("status", "0")
write("report.json", dict(right, tolerance=0.01, flip_tolerance=0.01, flips=3))
found = result(*verify("openvino", "net.onnx", "--python", reporter))
assert found["same"] and found["flips"] == 3, found
write("report.json", dict(right, tolerance=0.01, flip_tolerance=0.0, flips=3))
fails(1, "of counts that differ", *verify("openvino", "net.onnx", "--python", reporter))
write("report.json", dict(right, answers=2, flips=3))
fails(1, "'flips'", *verify("openvino", "net.onnx", "--python", reporter))
write("report.json", right)
both = result(*verify("all", "net.onnx", "--python", reporter))
assert [one["name"] for one in both["engines"]] == ["ort", "openvino"] and all(one["same"] for one in both["engines"]), both

# Another version than the measured one is named in the report.
sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines.comparison import version_warning  # noqa: E402

assert version_warning("openvino", "2026.4.1-abc", "2026.4.1") == []
reported, = version_warning("openvino", "2027.0.0", "2026.4.1")
assert "2027.0.0 runs" in reported and "2026.4.1" in reported, reported
