"""The command executes no file of the current folder: no Python module and no shared library."""

import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, SHORT, SOURCE, environment, run  # noqa: E402

MODULES = """abc argparse ast base64 cmake codecs collections contextlib copy csv ctypes dataclasses email ensurepip enum functools
    h5py importlib inspect io json keyword locale logging math ml_dtypes ninja numbers numpy onnx onnxruntime openvino operator os
    pandas pathlib pip platform pyarrow random re runpy setuptools shutil signal site sitecustomize socket ssl stat string struct
    subprocess sysconfig tempfile textwrap threading tokenize torch traceback types typing usercustomize venv warnings weakref
    zipfile""".split()
PYTHON = sys.executable
HIT = os.path.abspath("hits")

run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
run("export", "int8.h5", "--format", "onnx", "-o", "net.onnx", status=None)
run("train", *SHORT, "-o", "run/")
for name in MODULES:
    with open(name + ".py", "w") as file:
        file.write(f"with open({HIT!r}, 'a') as file:\n    file.write({name!r} + '\\n')\n")
os.mkdir("package")  # as a package, too
for name in ["re", "json", "venv", "pip"]:
    os.makedirs(f"package/{name}")
    shutil.copy(name + ".py", f"package/{name}/__init__.py")
with open("table.parquet", "wb") as file:
    file.write(b"PAR1")
with open("table.csv", "w") as file:
    file.write("a,y\n1,b\n2,c\n")
with open("recipe.json", "w") as file:
    json.dump({"data": DIGITS, "phases": [{"command": "verify", "model": "net.onnx", "checkpoint": "int8.h5"}]}, file)

os.environ["PIP_NO_INDEX"] = "1"  # environments are created and stay empty
os.environ["XDG_CACHE_HOME"] = os.path.abspath("cache")
os.environ.pop("FAKEQUANT_ENGINES", None)
named, installed = {"FAKEQUANT_PYTHON": PYTHON}, {"FAKEQUANT_PYTHON": ""}
verify = ["verify", "net.onnx", "--checkpoint", "int8.h5", "--data", DIGITS]
NAMED = [["doctor"], verify, [*verify, "--engine", "openvino"], ["compare", "run/", "--latency"],
         ["dataset", "from-parquet", "table.parquet", "-o", "t.h5"],
         ["dataset", "from-csv", "table.csv", "--label", "y", "-o", "t.h5"], ["run", "recipe.json"], ["run", "recipe.json", "--dry-run"],
         ["export", "int8.h5", "--format", "executorch", "-o", "net.pte"]]
INSTALLED = [["dataset", "from-csv", "table.csv", "--label", "y", "-o", "i.h5"], [*verify, "--engine", "openvino"], [*verify, "--engines", "engines"],
             ["verify", "net.gguf", "--checkpoint", "int8.h5", "--data", DIGITS, "--engine", "llama.cpp"]]
shutil.copy("net.onnx" if os.path.exists("net.onnx") else "float.h5", "net.gguf")


def hits():
    if not os.path.exists(HIT):
        return set()
    with open(HIT) as file:
        return set(file.read().split())


# The test itself: these modules are imported by a Python that searches the current folder.
subprocess.run([PYTHON, "-c", "import re, json, venv"], env=dict(os.environ, PYTHONSAFEPATH=""), capture_output=True)
assert hits(), "a planted module is not imported by python -c: this test shows nothing"
os.remove(HIT)

for folder, path, variables, commands in [
        (".", None, named, NAMED), (".", ":", named, NAMED[:6]), (".", "", installed, INSTALLED), ("package", ":", named, NAMED[:2])]:
    own = dict(environment(2), **variables)
    own.pop("PYTHONPATH", None)
    if path is not None:
        own["PYTHONPATH"] = path
    for words in commands:
        words = [os.path.relpath(word, folder) if os.path.exists(word) else word for word in words]
        subprocess.run([COMMAND, *words], cwd=folder, env=own, capture_output=True, timeout=600)
        assert not hits(), (folder, path, words, hits())

# The scripts of this tree name the option that keeps a Python from the current folder, or leave the folder first.
START = re.compile(r"""(python3?|\$\{?python\}?|executable\}?"?)["']?,?\s+["']?-(m|c)\b""")
tracked = subprocess.run(["git", "-C", SOURCE, "ls-files", "scripts", "cli", "cmake", "python", "CMakeLists.txt"],
                         capture_output=True, text=True).stdout.split()
for name in tracked:
    with open(os.path.join(SOURCE, name), errors="replace") as file:
        for number, line in enumerate(file, 1):
            advice = "pip install" in line and (re.search(r"print\(|raise |not found", line) or '"' == line.strip()[:1])
            advice = advice or (name.endswith(".py") and re.search(r"-m fakequant\.|prog=", line))  # no list of words
            safe = "(cd /" in line or "WORKING_DIRECTORY" in line or re.search("kRunModule|kFindModules", line)  # remove the folder
            assert not START.search(line) or advice or safe, f"{name}:{number} starts a Python without -I: {line.strip()}"


def run_path(file):
    """The folders that the loader searches for the libraries of a program, None if it does not say."""
    text = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
    return found[1].split(":") if found else []


def check_run_paths(folder):
    """Every folder is absolute, or relative to the file: an empty entry is the current folder."""
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    programs = [file for file in files if os.path.isfile(file) and open(file, "rb").read(4) == b"\x7fELF"]
    for file in programs:
        bad = [entry for entry in run_path(file) if not entry.startswith(("/", "$ORIGIN"))]
        assert not bad, f"{file} searches {run_path(file)}"
    return programs


if shutil.which("readelf") is None:
    print("SKIPPED: no readelf")
    raise SystemExit(77)
build = os.path.dirname(os.path.dirname(os.path.realpath(COMMAND)))
assert run_path(COMMAND), COMMAND
modules = os.path.join(build, "lib", "fakequant")
assert os.path.realpath(COMMAND) in check_run_paths(os.path.join(build, "bin"))
if os.path.isdir(modules):
    assert check_run_paths(modules)
if shutil.which("cmake") and os.path.exists(os.path.join(build, "cmake_install.cmake")):
    for part in ["runtime", *(["mpi"] if os.path.isdir(modules) else [])]:
        subprocess.run(["cmake", "--install", build, "--prefix", "prefix", "--component", part], check=True, capture_output=True)
    assert len(check_run_paths("prefix")) == (2 if os.path.isdir(modules) else 1)

# A library of the name of one that the command needs, which the loader would take from the current folder.
compiler = shutil.which("c++") or shutil.which("gcc")
needed = re.findall(r"(\S+) => (/\S+)", subprocess.run(["ldd", COMMAND], capture_output=True, text=True).stdout)
if compiler:
    with open("planted.c", "w") as file:
        file.write(f'#include <stdio.h>\n__attribute__((constructor)) static void hit(void) {{ FILE* f = fopen("{HIT}", "a"); '
                   'if (f) { fputs("library\\n", f); fclose(f); } }\n')
    os.mkdir("libraries")
    for name, path in needed:
        subprocess.run([compiler, "-x", "c", "planted.c", "-shared", "-fPIC", "-o", f"libraries/{name}", f"-Wl,-soname,{name}",
                        "-x", "none", "-Wl,--no-as-needed", path], check=True, capture_output=True)
    for program in [COMMAND, *(["../prefix/bin/fakequant"] if os.path.exists("prefix/bin/fakequant") else [])]:
        done = subprocess.run([program, "--version"], cwd="libraries", env=environment(2), capture_output=True, text=True)
        assert done.returncode == 0 and not hits(), (program, done.stderr, hits())
