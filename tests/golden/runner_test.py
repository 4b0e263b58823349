"""The golden runner finds faults: small files with one right and one wrong case each."""
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError:
    print("skipped: needs h5py and numpy")
    sys.exit(77)

X = np.array([0.5, -1.0, 0.126], np.float32)
RIGHT = np.array([0.0, -1.0, 0.0], np.float32)


def write(path, function="int_cast_ste", y=RIGHT, compare="bits", schema="fakequant-golden", bits=8, unsigned=False, half=False, **attributes):
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = np.bytes_(schema)
        file.attrs["version"] = 1
        case = file.create_group("case")
        case.attrs["function"] = np.bytes_(function)
        case.attrs["compare"] = np.bytes_(compare)
        case.attrs["num_bits"] = bits
        case.attrs["unsigned"] = int(unsigned)
        for name, value in attributes.items():
            case.attrs[name] = np.bytes_(value)
        case["in/x"] = X.astype(np.float16) if half else X
        if "error" not in attributes:
            case["out/y"] = y


def run(change=None, only=(), **options):
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "a.h5"), **options)
        if change:
            with h5py.File(os.path.join(folder, "a.h5"), "r+") as file:
                change(file)
        environment = dict(os.environ, FAKEQUANT_GOLDEN_DIR=folder)
        done = subprocess.run([sys.argv[1], *only], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def expect(code, *texts, change=None, only=(), **options):
    got, output = run(change, only, **options)
    assert got == code, (got, output)
    for text in texts:
        assert text in output, (text, output)


expect(0, "golden: 1 / 1 agree")
wrong = RIGHT.copy()
wrong[1] = -2
expect(1, "golden: 0 / 1 agree", "y [1]: expected -2", "got -1", "input -1", y=wrong)
negative_zero = np.array([-0.0, -1.0, 0.0], np.float32)
expect(1, "y [0]", y=negative_zero)
expect(0, y=negative_zero, compare="abs:0")
expect(1, "unknown comparison", compare="roughly")
expect(1, "expected f64", y=RIGHT.astype(np.float64))
expect(0, y=RIGHT.astype(np.float64), compare="rel:1e-6")
expect(1, "has shape", y=RIGHT[:2])
expect(1, "unknown function", function="no_such_function")
expect(1, "golden: 0 / 1 agree", "degenerate", y=wrong, edge="degenerate")
expect(0, "golden: 1 / 1 agree", "degenerate 1 / 1", edge="degenerate")
near = RIGHT + np.array([0, 5e-4, 0], np.float32)
expect(1, "y [1]", y=near, compare="abs:1")  # a tolerance as large as the answers is none
expect(1, "y [1]", y=near, compare="rel:1")
expect(0, y=RIGHT + np.array([0, 5e-5, 0], np.float32), compare="abs:1")
expect(1, "must be refused", error="ValueError")
overflow = "value cannot be converted to type c10::Half without overflow"
expect(0, error="RuntimeError", error_message=overflow, half=True, bits=16, unsigned=True)
expect(1, "must be refused with 'is no number of'", error="RuntimeError", error_message=overflow, bits=99)
expect(1, "refusals.cpp does not know", error="RuntimeError", error_message="another mistake", bits=99)
expect(2, "not a golden file", schema="other")
expect(1, "has no answer", change=lambda file: file["case"].pop("out"))
expect(1, "has no answer", change=lambda file: file["case/out"].pop("y"))
expect(2, "has no cases", change=lambda file: file.pop("case"))
expect(0, only=["int_cast_ste"])
expect(1, "0 / 0", only=["tensor_quant"])
expect(1, "0 / 0", "golden: 1 / 1 agree", only=["int_cast_ste", "tensor_quant"])
expect(2, "no function 'other'", only=["other"])
print("the runner finds every difference")
