"""Lists every message that the sources throw, with its error type, file and line."""
import collections
import pathlib
import re

FOLDERS = ["core", "calib", "reference", "layers", "train", "export", "network", "report", "cli", "python"]
ERRORS = "ArgumentError|FileError|NumericError|BackendError|SystemError|FolderTaken"
START = re.compile(rf"\bFQ_CHECK\(|\bthrow (?:::)?(?:fq::)?({ERRORS})\(|\b(?:throw )?(refuse\w*|fail\w*|bad\w*)\(")
REASON = re.compile(r'\breturn (?:fmt::format\()?((?:"(?:[^"\\\n]|\\.)*"\s*)+)')
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
NAMED = re.compile(r'constexpr (?:const char\*|std::string_view|char) (k\w+)(?:\[\])? ?= ?("(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*)')

Message = collections.namedtuple("Message", "text error path line")


def arguments(source, start):
    """The arguments of the call whose bracket was opened before `start`, at their commas."""
    parts, depth, begin, at = [], 0, start, start
    while at < len(source):
        c = source[at]
        if c == '"' or (c == "'" and not source[at - 1].isalnum()):
            at += 1
            while source[at] != c:
                at += 2 if source[at] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return parts + [source[begin:at]]
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(source[begin:at])
            begin = at + 1
        at += 1
    return parts


def words(expression, names):
    """The literals of an expression in their order, neighbours joined, constants of the file by their text."""
    expression = re.sub(r"\bk[A-Z]\w*", lambda m: names.get(m.group(), m.group()), expression)
    runs, last = [], None
    for found in LITERAL.finditer(expression):
        joined = last is not None and not expression[last:found.start()].strip()
        if joined:
            runs[-1] += found.group(1)
        else:
            runs.append(found.group(1))
        last = found.end()
    return [re.sub(r"\\(.)", r"\1", text) for text in runs]


def template(text):
    """Returns the message with `...` for parts that are filled in at run time."""
    bare = text.replace("{{", "\0").replace("}}", "\1")
    return re.sub(r"\{[^{}]*\}", "...", bare).replace("\0", "{").replace("\1", "}")


def find_messages(path, text):
    names = dict(NAMED.findall(text))
    for found in START.finditer(text):
        call = arguments(text, found.end())
        line = text.count("\n", 0, found.start()) + 1
        if found.group(2):  # a helper function that throws its argument as an error
            said = [w for part in call for w in words(part, names) if " " in w]
            error = "FileError" if "reader" in path else "ArgumentError"
        elif found.group(1):
            said = [w for part in call for w in words(part, names) if len(w) > 3]
            error = found.group(1)
        else:
            function = (words(call[1], names) or ["..."])[0] if len(call) > 1 else "..."
            said = [w for part in call[2:3] for w in words(part, names)]
            said = [f"[{function}] {said[0]}"] if said else []
            error = "ArgumentError"
        if said:
            yield Message(template(" ".join(said)), error, path, line)
    for found in REASON.finditer(text):  # a function returns the reason, its caller throws
        said = "".join(words(found.group(1), names))
        if ": " in said and len(said.split()) > 6:
            yield Message(template(said), "ArgumentError", path, text.count("\n", 0, found.start()) + 1)


    for found in NAMED.finditer(text):  # a whole message, passed to a kernel that throws it
        said = "".join(words(found.group(2), names))
        if said.startswith("["):
            yield Message(template(said), "NumericError", path, text.count("\n", 0, found.start()) + 1)


def messages(root):
    """Yields all messages of the source tree `root`, in the order of its folders."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".cpp", ".h", ".cu", ".cuh"):
                text = re.sub(r"//.*", "", file.read_text())
                yield from find_messages(file.relative_to(root).as_posix(), text)


def nearest(found, said, count=3):
    """Returns the messages that share the most words with `said`, at least two, the nearest first."""
    asked, scored = set(re.findall(r"[a-z_]{3,}", said.lower())), []
    for message in found:
        own = set(re.findall(r"[a-z_]{3,}", message.text.lower()))
        common = len(asked & own)
        if common >= 2:
            scored.append((-common * common / (len(own) * len(asked)), message))
    return [message for _, message in sorted(scored)[:count]]


def parse_parts(page):
    """Returns {source folder: section of docs/errors.md}, from the lines "Sources: .."."""
    found = {}
    for part, sources in re.findall(r"^## (.+)\n\nSources: (.+)$", page, re.M):
        for folder in re.findall(r"`([^`]+)`", sources):
            assert folder not in found, f"{folder} stands in two parts, {found[folder]} and {part}"
            found[folder] = part
    return found


def find_part(path, parts):
    """The part of the nearest folder above `path`, or None."""
    for folder in pathlib.PurePosixPath(path).parents:
        if str(folder) in parts:
            return parts[str(folder)]
    return None
