"""command_reference.py FAKEQUANT [--check]: writes the lists of flags and settings in docs/command-line.md from the
command's help. --check compares instead. Exit status 1 if the page differs.

A list is between `<!-- flags: COMMAND, .. -->` and `<!-- end -->`; `NAME*` means all commands that begin so. Each flag goes to the list with the fewest commands that has all
commands of the flag. `<!-- flags: all -->` has the other flags, `<!-- commands -->` the commands, `<!-- settings -->` the settings.
"""
import fnmatch
import os
import re
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "command-line.md")
FLAG = re.compile(r"^  (?:(-\w)(?: \[ (--[\w-]+) \]| \S+, (--[\w-]+))|(--[\w-]+)|(-\w), (--[\w-]+))"
                  r"(?: ((?:\[NAME=\])?[A-Z]\S*(?: \.\.)?))?(?: \(=(.*?)\))? +(\S.*)$")
SETTING = re.compile(r"^  (\S+) (\S+)(?: \(=(.*?)\))?( \(qat\))?$")
MARKER = re.compile(r"<!-- (flags: [^>]*?|commands|settings) -->\n.*?<!-- end -->", re.S)


def read_help(program, *command):
    # Help of the Python parts wraps its lines at the width of the terminal.
    done = subprocess.run([program, *command], capture_output=True, text=True, env=dict(os.environ, COLUMNS="120"))
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def commands(program):
    """Names of all commands, each with the words of its line in the list of commands."""
    def listed(*group):
        found = re.findall(r"^  ([a-z]+(?: [a-z-]+)?) {2,}(\S.*(?:\n {15,}\S.*)*)", read_help(program, *group, "--help"), re.M)
        return {name: " ".join(text.split()) for name, text in found if not name.startswith("fakequant")}
    top = listed()
    assert len(top) > 10 and "dataset" in top, top
    del top["dataset"]
    return {**top, **listed("dataset")}


def flags(text):
    """(flag with its value, default, description) of each flag of a help."""
    rows, row = [], None
    for line in text.split("\nSettings for --set")[0].splitlines():
        match = FLAG.match(line)
        if match:
            short, name = match[1] or match[5], match[2] or match[3] or match[4] or match[6]
            row = [", ".join(filter(None, (short, name))) + (f" {match[7]}" if match[7] else ""), match[8] or "", match[9].strip()]
            rows.append(row)
        elif row and line.startswith("     ") and line.strip():
            of_value = re.match(r"[a-z]+(-[a-z]+)*: [A-Z]", line.strip())  # a line for each value of the flag
            separator = "; " if of_value and not row[2].endswith(":") else " "
            row[2] += separator + line.strip()
        else:
            row = None
    return [(name, *separate_default(default, text)) for name, default, text in rows if "--help" not in name]


def separate_default(default, text):
    match = re.fullmatch(r"(.*?),? \(default: ([^()]*)\)", text)
    return (match[2], match[1]) if match and not default else (default, text)


def entry(name, value, default, text, note=""):
    shown = f"`{name}`" + (f" {value}" if value else "") + (f" ({default})" if default else "")
    return f"* {escaped(shown)}: {escaped(text)}{note}"


def escaped(text):
    return "".join(part if part.startswith("`") else re.sub(r"([<*]|(?<=\s)_)", r"\\\1", part) for part in re.split(r"(`[^`]*`)", text))


def flags_of_commands(program):
    """The commands of each flag with one description."""
    users = {}
    for name in commands(program):
        for row in flags(read_help(program, *name.split(), "--help")):
            users.setdefault(row, []).append(name)
    return users


def flag_lists(program, users, markers):
    lists = {marker: [] for marker in markers}
    for (flag, default, text), used in users.items():
        fitting = [marker for marker in markers if marker != ("all",) and set(used) <= set(marker)]
        marker = min(fitting, key=len) if fitting else ("all",)
        assert marker in lists, f"no list for {flag} of {used}"
        everywhere = len(used) > 5 if marker == ("all",) else len(used) == len(marker)
        note = "" if everywhere else f" ({', '.join(f'`{name.split()[-1]}`' for name in used)})"
        lists[marker].append(entry(flag, "", default, text, note))
    unknown = {name for marker in markers for name in marker} - set(commands(program)) - {"all"}
    assert not unknown, f"no commands {unknown}"
    empty = [marker for marker, rows in lists.items() if not rows]
    assert not empty, f"no flags for the list of {empty}"
    return {marker: "\n".join(rows) for marker, rows in lists.items()}


def setting_list(program, users):
    """A line for each setting, first of train and qat, then of qat. Settings with the description of a flag of calibrate share the last line."""
    described = {text for (_, _, text), used in users.items() if "calibrate" in used}
    rows, flags_too, found = ([], []), [], read_help(program, "help", "settings").splitlines()
    for line, text in zip(found, found[1:]):
        match = SETTING.match(line)
        if match and text.startswith("      "):
            default, text = separate_default(match[3] or "", text.strip())
            if text in described:
                flags_too.append(f"`{match[1]}`")
            else:
                rows[bool(match[4])].append(entry(match[1], match[2], default, text))
    if flags_too:
        rows[1].append(f"* {', '.join(flags_too)}: as the flags of `calibrate`")
    assert len(rows[0]) > 30 and len(rows[1]) > 10, rows
    return "\n".join([*rows[0], "", "`qat` only:", "", *rows[1]])


def command_list(program):
    return "\n".join(f"* `{name}`: {text}" for name, text in commands(program).items())


def main(program, *options):
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    users, names = flags_of_commands(program), list(commands(program))

    def matching_commands(marker):
        patterns = [name.strip() for name in marker.removeprefix("flags:").split(",")]
        return tuple(name for pattern in patterns for name in fnmatch.filter(names, pattern) or [pattern])

    lists = flag_lists(program, users, [matching_commands(marker) for marker in MARKER.findall(text) if marker.startswith("flags:")])

    def block(match):
        rows = {"settings": lambda: setting_list(program, users), "commands": lambda: command_list(program)}.get(
            match[1], lambda: lists[matching_commands(match[1])])()
        return f"<!-- {match[1]} -->\n{rows}\n<!-- end -->"

    written = MARKER.sub(block, text)
    if "--check" in options:
        if written != text:
            print(f"docs/command-line.md differs from the help. Run: python3 scripts/lib/command_reference.py {program}", file=sys.stderr)
        return written != text
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(written)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
