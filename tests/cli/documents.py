"""Commands, flags, presets, files and links that README and docs mention exist."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, SOURCE, run  # noqa: E402

FOLDERS = "scripts|tests|docs|examples|models|recipes|data|core|calib|layers|train|export|cli"


def read_text(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def documents():
    names = ["README.md"] + [os.path.join(folder, name) for folder in ("docs", "docs/benchmarks")
                             for name in sorted(os.listdir(os.path.join(SOURCE, folder))) if name.endswith(".md")]
    return {name: read_text(name) for name in names}


def code(text):
    """Lines of fenced blocks, and text between backticks."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"^ {4}(\S.*)$", text, re.M)
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", rest)]
    return [line for block in fenced for line in block.replace("\\\n", " ").splitlines()] + indented + spans


def find_flags(text):
    return re.findall(r"(?<![\w-])(--[a-z][a-z-]*[a-z])", text)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")


def listed(*command):
    """The commands that a help lists, all words of each."""
    found = re.findall(r"^  ([a-z]+(?: [a-z-]+)?) {2,}\S", run(*command, "--help").stdout, re.M)
    return [name for name in found if not name.startswith("fakequant")]


# Every command has a help that lists every flag with its meaning, and a unit if it takes a value.
groups = {"dataset": listed("dataset")}
commands = [name for name in listed() if name not in groups] + sum(groups.values(), [])
assert len(commands) > 15, commands
helps = {command: run(*command.split(), "--help").stdout for command in commands}
flags = {command: set(find_flags(text)) for command, text in helps.items()}
for command, text in helps.items():
    for line in re.findall(r"^  (-.*)$", text, re.M):
        layout = r"(-\w( \[|( \S+)?,) )?--[a-z-]+( \])?( \[?=?\S+)?( \(=.*?\))? *\S"  # "-o [ --output ] FILE" or "-o FILE, --output FILE"
        assert re.match(layout, line), f"{command}: {line}"
        assert "ARG" not in line and " arg " not in line, f"{command}: {line}"

others = "\n".join(read_text(os.path.join("scripts", name)) for name in os.listdir(os.path.join(SOURCE, "scripts"))
                   if os.path.isfile(os.path.join(SOURCE, "scripts", name)))
others += "\n".join(read_text(os.path.join("scripts/lib", name)) for name in os.listdir(os.path.join(SOURCE, "scripts/lib"))
                    if os.path.isfile(os.path.join(SOURCE, "scripts/lib", name)))
elsewhere = set(find_flags(others)) | {"--preset", "--build", "--install", "--prefix", "--help", "--version", "--recurse-submodules"}
known = set().union(*flags.values()) | elsewhere

found = {"commands": 0, "flags": 0, "links": 0, "paths": 0}
for name, text in documents().items():
    for line in code(text):
        for command, rest in re.findall(r"(?:^|[\s/$])fakequant ([a-z]+)\b([^#`;]*)", line):
            if re.match(r"fakequant [a-z]+:|import fakequant as", line) or command == "help" or command not in commands and not rest.strip():
                continue
            if command in groups:
                word = re.match(r" *([a-z-]*)", rest).group(1)
                if not word or word.startswith("--") or rest.strip().startswith("from-.."):
                    continue  # speaks of them all
                command, rest = f"{command} {word}", rest.split(word, 1)[1]
            assert command in commands, f"{name}: there is no command '{command}': {line}"
            found["commands"] += 1
            unknown = set(find_flags(rest)) - flags[command]
            assert not unknown, f"{name}: {command} has no {unknown}: {line}"
        if "fakequant" not in line and re.match(r"--[a-z]", line):
            found["flags"] += 1
            unknown = set(find_flags(line)) - known
            assert not unknown, f"{name}: there is no {unknown}"
        for path in re.findall(rf"^(?:\./)?((?:{FOLDERS})/[\w./-]+)$", line):
            found["paths"] += 1
            assert os.path.exists(os.path.join(SOURCE, path)), f"{name}: there is no {path}"
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        found["links"] += 1
        path, _, place = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        assert os.path.exists(os.path.join(SOURCE, target)), f"{name}: there is no {target}"
        if place:
            headings = [anchor(heading) for heading in re.findall(r"^#+ (.*)$", read_text(target), re.M)]
            assert place in headings, f"{name}: {target} has no {place}, but {headings}"
assert all(count >= 10 for count in found.values()), found

# Allowed values of flags in the help are in the page of the command line.
page = read_text("docs/command-line.md")
presets = re.findall(r"\b(?:int8|w\da\d|int4|fp8|nvfp4|mx(?:fp|int)\d)\w*", helps["calibrate"].split("--preset")[1].split("--config")[0])
assert len(presets) >= 15, presets
for preset in presets:
    assert f"`{preset}`" in page, f"docs/command-line.md has no `{preset}`"
for command in commands:
    assert f"* `{command}`: " in page, f"docs/command-line.md has no `{command}`"
subprocess.run([sys.executable, os.path.join(SOURCE, "scripts/lib/command_reference.py"), COMMAND, "--check"], check=True)
print("documents: ok", found)
