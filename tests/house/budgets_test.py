"""budgets_test.py SOURCE_DIR [COMMAND]: the size of the project stays within its budgets.

A change that exceeds a limit fails. A clean-up lowers the limit to the size that it reached. The aim is the
long-term target. Lines are lines of text files, blank lines included. COMMAND is the built `fakequant`, whose help is
counted; without it the budgets of flags are skipped, with a message.
"""
import collections
import pathlib
import re
import subprocess
import sys

NOT_PRODUCT = {"tests", "bench", "docs"}
LIBRARY = ["core", "calib", "reference", "layers", "train", "export", "network", "report", "cli"]
CPP = {".h", ".cpp", ".cu", ".cuh"}
CACHES = {".git", "build", "__pycache__", ".pytest_cache", ".cache"}
NOT_INSTALLED = re.compile(r"/(detail|backend|kernels|reader|writer)/")  # as in cmake/FakequantLibrary.cmake
SMALL = 30  # lines of a file that is too small to be one concept

# name: (limit, aim)
BUDGETS = {
    "product lines": (157750, 120000),
    "files": (2240, 2000),
    "C++ files below 30 lines, per mille": (43, 80),
    "public headers": (125, 110),
    "source files side by side in a folder": (34, 40),
    "flags of qat": (45, 45),
    "flags of train": (39, 40),
    "words in documents": (40000, 40000),
    "words in README.md": (700, 700),
}


def tracked_files(root):
    """All files of a checkout, except caches and build folders. A git checkout lists exactly its tracked files."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.decode().split("\0")[:-1]
        return [name for name in names if (root / name).is_file()]
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not CACHES & set(path.parts))


def line_count(path):
    content = path.read_bytes()
    return 0 if b"\0" in content else content.count(b"\n")


def flag_count(command, subcommand):
    text = subprocess.run([command, subcommand, "--help"], capture_output=True, text=True, check=True).stdout
    return len(set(re.findall(r"^\s+(?:-\w[, ]+(?:\[ )?)?--([a-z][\w-]*)", text, re.M)))


def word_count(path):
    return len(path.read_text().split())


def measure(root, command):
    names = tracked_files(root)
    lines = {name: line_count(root / name) for name in names}
    top = {name: name.split("/")[0] for name in names}
    sources = [name for name in names if top[name] in LIBRARY + ["python"] and pathlib.Path(name).suffix in CPP]
    folders = collections.Counter(str(pathlib.Path(name).parent) for name in sources)
    documents = [name for name in names if name.endswith(".md") and (top[name] == "docs" or "/" not in name)]
    figures = {
        "product lines": sum(lines[name] for name in names if top[name] not in NOT_PRODUCT and not name.endswith(".md")),
        "files": len(names),
        "C++ files below 30 lines, per mille": round(1000 * sum(lines[n] < SMALL for n in sources) / len(sources)),
        "public headers": sum(name.endswith(".h") and top[name] in LIBRARY[:-1] and not NOT_INSTALLED.search(name)
                              for name in names),
        "source files side by side in a folder": max(folders.values()),
        "words in documents": sum(word_count(root / name) for name in documents),
        "words in README.md": word_count(root / "README.md"),
    }
    if command:
        figures |= {f"flags of {name}": flag_count(command, name) for name in ("qat", "train")}
    return figures


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    figures = measure(root, sys.argv[2] if len(sys.argv) > 2 else None)
    failed = False
    for name, (limit, aim) in BUDGETS.items():
        if name not in figures:
            print(f"skipped {name}: this build has no command")
            continue
        exceeded = figures[name] > limit
        failed |= exceeded
        print(f"{'EXCEEDED' if exceeded else 'ok':8} {name}: {figures[name]}, limit {limit}, aim {aim}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
