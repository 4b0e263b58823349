"""additions_test.py SOURCE BUILD: the diffs in docs/developing.md are complete. All of them are applied to a
copy of the sources. Sources of BUILD that they affect are compiled again and linked before its libraries into
a command of their own, and the document's commands are run with that."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("core", "calib", "reference", "layers", "train", "export", "report", "cli")
SKIPPED = 77


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


def run(line, folder, **more):
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def apply(diff, tree):
    """Applies each hunk at the only place with its lines, at any line number; a file from /dev/null is new."""
    for old, path, hunks in re.findall(r"^--- (\S+)\n\+\+\+ b/(\S+)\n((?:[@ +\-].*\n)+?)(?=--- |\Z)", diff, re.M):
        file = tree / path
        text = "" if old == "/dev/null" else file.read_text()
        for hunk in re.split(r"^@@.*@@.*\n", hunks, flags=re.M)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1 or not text, f"{path}: not there, or twice:\n{before}"
            text = text.replace(before, after) if text else after
        file.write_text(text)


def touched(diffs, tree):
    """Sources that the diffs change or add, and sources that include a changed file, directly or indirectly. Device
    code is not compiled: these commands run on the host. Hunks of tests are only applied."""
    files = {str(path.relative_to(tree)): path.read_text() for folder in FOLDERS for path in (tree / folder).rglob("*.*")
             if path.suffix in (".h", ".def", ".cpp")}
    included = {path: set(re.findall(r'^#include "fakequant/([^"]+)"', text, re.M)) for path, text in files.items()}
    changed = set(re.findall(r"^\+\+\+ b/(\S+)$", "".join(diffs), re.M))
    while more := {path for path, below in included.items() if path not in changed and below & changed}:
        changed |= more
    elsewhere = ("core/backend/cuda/", "reference/kernels/cuda/", "tests/")
    return sorted(path for path in changed if path.endswith(".cpp") and not path.startswith(elsewhere))


class Build:
    def __init__(self, source, build, work):
        self.build, self.work = build, work
        self.members, self.commands = {}, {}  # per source: the sources of its unit; the compile command
        for entry in json.loads((build / "compile_commands.json").read_text()):
            file = pathlib.Path(entry["file"])
            together = re.findall(r'^#include "(.+)"', file.read_text(), re.M) if file.parent.name == "Unity" else [file]
            members = tuple(os.path.relpath(member, source) for member in together)
            for member in members:
                self.members.setdefault(member, members)
                self.commands.setdefault(member, entry["command"])
        (work / "include").mkdir()
        (work / "include" / "fakequant").symlink_to(work / "tree")

    def units(self, sources):
        return sorted({self.members.get(source, (source,)) for source in sources})

    def flags(self, path):
        """Compile flags of the source; a new source has the flags of another one in its folder."""
        folder = os.path.dirname(path)
        near = path if path in self.commands else min(name for name in self.commands if os.path.dirname(name) == folder)
        words = shlex.split(self.commands[near])
        words = words[next(i for i, word in enumerate(words) if word.endswith(("c++", "g++", "clang++"))):]
        return words[:words.index("-o")], near

    def compile(self, unit):
        words, near = self.flags(unit[0])
        here = f"-I{self.build}/include"
        assert here in words, f"{near}: {words}"
        words[words.index(here)] = f"-I{self.work}/include"
        whole = self.work / (unit[0].replace("/", "_") + ".unit.cpp")
        whole.write_text("".join(f'#include "{self.work}/tree/{member}"\n' for member in unit))
        made = whole.with_suffix(".o")
        run([*words, "-o", str(made), "-c", str(whole)], self.build)
        return str(made)

    def link(self, objects):
        lines = run(["ninja", "-t", "commands", "bin/fakequant"], self.build).splitlines()
        program = self.work / "fakequant"
        assert lines[-1].count(" -o bin/fakequant ") == 1, lines[-1]
        line = lines[-1].replace(" -o bin/fakequant ", f" -o {program} {' '.join(objects)} ")
        run(["bash", "-c", line], self.build)


def main(source, build):
    if not (build / "build.ninja").exists() or not (build / "compile_commands.json").exists():
        print("skipped: no build by Ninja with its compile commands")
        return SKIPPED
    document = (source / "docs" / "developing.md").read_text()
    diffs, commands = blocks(document, "diff"), blocks(document, "sh")
    assert len(diffs) >= 5 and len(commands) >= 5, (len(diffs), len(commands))
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        for folder in (*FOLDERS, "tests/layers"):
            shutil.copytree(source / folder, work / "tree" / folder)
        for diff in diffs:
            apply(diff, work / "tree")
        made = Build(source, build, work)
        units = made.units(touched(diffs, work / "tree"))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            made.link(list(pool.map(made.compile, units)))
        (work / "data").symlink_to(source / "data")
        path = f"{work}:{os.environ['PATH']}"
        for block in commands:
            run(["bash", "-euo", "pipefail", "-c", block], work, env=dict(os.environ, PATH=path, OMP_NUM_THREADS="2"))
        print(f"additions: ok, {len(diffs)} diffs, {len(units)} units")
    return 0


sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
