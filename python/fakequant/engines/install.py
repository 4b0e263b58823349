"""Installs an inference engine: makes FOLDER/NAME, an environment whose bin/python runs the engine. An existing environment is made
again if its list of packages has changed. Requires PyPI. xnnpack is ExecuTorch with PyTorch, 1.6 GB on disk, and requires gcc and
binutils. llama.cpp is built from the source package of llama-cpp-python, which takes minutes and requires a C++ compiler. Exit status:
0, or 77 if the engine cannot be installed."""
import fcntl
import filecmp
import glob
import os
import shutil
import subprocess
import sys

from . import stand_ins
from .comparison import program_parser

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = ("ort", "openvino", "xnnpack", "llama.cpp")
LLAMA = "llama-cpp-python==0.3.36"
LLAMA_CALLS = os.path.join(HERE, "llama_calls.cpp")
LLAMA_OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_OPENMP=OFF", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
                 *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER"))]


class Unavailable(Exception):
    """An environment or an engine cannot be made. The text is the reason."""


def same(path, other):
    return os.path.exists(other) and filecmp.cmp(path, other, shallow=False)


def make(folder, needs, steps):
    """Calls steps(run), where run(*words) writes its output to FOLDER.log. Raises Unavailable with the last line."""
    path = f"{folder}.log"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as log:

        def run(*words):  # in /, because pip and venv start Pythons that import from the current folder
            subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=True)

        try:
            steps(run)
            return
        except subprocess.CalledProcessError as error:
            reason = f"{os.path.basename(error.cmd[0])} failed with status {error.returncode}"
        except OSError as error:
            reason = str(error)
    with open(path, encoding="utf-8", errors="replace") as log:
        last = [line.strip() for line in log if line.strip()][-1:]
    raise Unavailable(f"{folder} cannot be made: {(last or [reason])[0]} ({path}). Required: {needs}")


def make_environment(folder, requirements, torch_stand_ins=False):
    """Makes a virtual environment with a complete list of packages, unless it exists with this list. With `torch_stand_ins` libraries
    without code replace NVIDIA's libraries."""
    part = f"{folder}.part"

    def steps(run):
        for old in (folder, part):
            shutil.rmtree(old, ignore_errors=True)
        run(sys.executable, "-I", "-m", "venv", part)
        run(f"{part}/bin/python", "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary",
            ":all:", "--retries", "1", "--timeout", "15", "-r", requirements)
        if torch_stand_ins:
            stand_ins.make_all(glob.glob(f"{part}/lib/python3*/site-packages")[0])
        shutil.copyfile(requirements, f"{part}/requirements.txt")
        os.rename(part, folder)  # renaming makes sure that an environment with this name is complete

    if not same(requirements, f"{folder}/requirements.txt"):
        make(folder, f"PyPI, and Python 3.11 or newer with venv as {sys.executable}", steps)


def build_llama(folder, run):
    """Builds the libraries of llama.cpp and copies them with their headers to FOLDER/engine."""
    python, work, engine = f"{folder}/bin/python", f"{folder}.build", f"{folder}/engine"
    for old in (work, engine):
        shutil.rmtree(old, ignore_errors=True)
        os.makedirs(old)
    run(python, "-I", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-binary",
        "llama-cpp-python", "--retries", "1", "--timeout", "60", "-d", work, LLAMA)
    run("tar", "xf", *glob.glob(f"{work}/llama_cpp_python-*.tar.gz"), "-C", work, "--strip-components", "1")
    source = f"{work}/vendor/llama.cpp"
    run(python, "-I", "-m", "cmake", f"-DCMAKE_MAKE_PROGRAM={folder}/bin/ninja", "-S", source, "-B", f"{work}/b", "-G", "Ninja",
        *LLAMA_OPTIONS)
    run("nice", python, "-I", "-m", "cmake", "--build", f"{work}/b", "--target", "llama")
    for library in glob.glob(f"{work}/b/bin/*.so*"):
        shutil.copy2(library, engine, follow_symlinks=False)
    shutil.copytree(f"{source}/ggml/include", f"{work}/include")
    shutil.copytree(f"{source}/include", f"{work}/include", dirs_exist_ok=True)
    os.rename(f"{work}/include", f"{engine}/include")  # the last step, because the folder marks a complete build
    shutil.rmtree(work)


def install_llama(folder):
    """Builds llama.cpp and the library of llama_calls.cpp, unless both exist."""
    engine = f"{folder}/engine"

    def steps(run):
        if not os.path.isdir(f"{engine}/include"):
            build_llama(folder, run)
        run(os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{engine}/include", LLAMA_CALLS, "-o",
            f"{engine}/libfakequant_llama.so", f"-L{engine}", "-lllama", "-lggml", "-lggml-cpu", "-lggml-base", "-Wl,-rpath,$ORIGIN")
        shutil.copyfile(LLAMA_CALLS, f"{engine}/llama_calls.cpp")

    if not same(LLAMA_CALLS, f"{engine}/llama_calls.cpp"):
        make(folder, "PyPI and a C++ compiler", steps)


def install(name, home):
    """Makes HOME/NAME. If several processes call it at once, one makes it and the others wait."""
    folder = os.path.join(os.path.abspath(home), name)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_environment(folder, os.path.join(HERE, "requirements", f"{name}.txt"), torch_stand_ins=name == "xnnpack")
        if name == "llama.cpp":
            install_llama(folder)


def main():
    parser = program_parser(__doc__)
    parser.add_argument("name", choices=ENGINES)
    parser.add_argument("folder")
    args = parser.parse_args()
    try:
        install(args.name, args.folder)
    except (Unavailable, OSError) as error:
        print(error)
        return 77
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
