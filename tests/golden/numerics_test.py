"""docs/numerics.md has a row for every function in golden files and in headers. Functions of
headers are also called with empty inputs."""
import glob
import os
import re
import subprocess
import sys

ROOT = os.environ["FAKEQUANT_SOURCE_DIR"]
RESULTS = r"(?:Tensor|Variable|QTensor|QParams|ScaledCodes|Blocks|StaticResult|DynamicCodes|QuantizedAttention|Quantized<\w+>|std::pair<\w+, Tensor>)"
DECLARED = re.compile(r"^(?:\[\[nodiscard\]\] )?" + RESULTS + r" (\w+)\(|^class (\w+(?:Observer|Calibrator))\b(?!;)", re.MULTILINE)
BASES = {"RangeObserver", "Calibrator"}


def rows():
    with open(os.path.join(ROOT, "docs", "numerics.md"), encoding="utf-8") as file:
        text = file.read().split("## Every function")[1].split("\n## ")[0]
    table = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
    for cells in table:
        assert len(cells) == 8, f"{cells[0]} has {len(cells)} columns"
    return table


def headers():
    """Names of free functions and of observers, with their namespaces as far as a name needs one."""
    found = set()
    for path in sorted(glob.glob(f"{ROOT}/reference/*.h") + glob.glob(f"{ROOT}/reference/observers/*.h")):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"^namespace fq::detail \{$.*?^\}", "", file.read(), flags=re.MULTILINE | re.DOTALL)
        space = re.search(r"namespace fq::(\w+)", text)
        for match in DECLARED.finditer(text):
            name = match.group(1) or match.group(2)
            found.add(f"{space.group(1)}::{name}" if space and space.group(1) in ("onnx", "tripy", "tensorrt", "ggml", "xnnpack") else name)
    return found - BASES


table = rows()
named = [name for cells in table for name in re.findall(r"`([^`]+)`", cells[0])]
golden, emptied = (set(subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()) for program in sys.argv[1:3])
assert len(golden) > 30, golden
plain = {name.replace("::", "_") for name in named}
twice = {name for name in named if named.count(name) > 1}
assert not twice, f"more than one row: {twice}"
assert not golden - plain, f"no row in docs/numerics.md: {sorted(golden - plain)}"
assert not headers() - set(named), f"no row in docs/numerics.md: {sorted(headers() - set(named))}"
folders = [glob.glob(f"{ROOT}/{folder}/**/*.h", recursive=True) for folder in ("core", "calib", "reference", "layers")]
declared = "".join(open(path, encoding="utf-8").read() for paths in folders for path in paths)
removed = [name for name in named if name not in golden and not re.search(rf"\b{name.split('::')[-1]}\b", declared)]
assert not removed, f"rows in docs/numerics.md of missing functions: {removed}"
classes = {name for name in headers() if name[0].isupper()}  # their row names what golden files call them
called = {name.replace("::", "_") for name in emptied}
forgotten = [name for name in headers() - classes if name.replace("::", "_") not in called]
forgotten += [cells[0] for cells in table if classes & set(re.findall(r"`(\w+)`", cells[0])) and not called & set(re.findall(r"`(\w+)`", cells[0]))]
assert not forgotten, f"not called with empty inputs by tests/empty: {sorted(forgotten)}"
print(f"{len(table)} rows, {len(golden)} functions of golden files, {len(headers())} of headers")
