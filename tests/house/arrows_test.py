"""arrows_test.py SOURCE_DIR: rules of structure (docs/developing.md). Includes point down, and no folder is too full. Only
whole_value (core/io/detail/json_text.h) converts JSON numbers to integers, because files may hold any value. Loops use
`omp for`, because OpenMP may start fewer threads than requested. Headers between backends and their callers name no backend.

A folder may include the folders before it. Inside of core each folder has a level: headers include their own level
and lower ones; sources directly in core may also call the backend's table.
"""
import collections
import pathlib
import re
import sys

HOUSE = ["core", "calib", "reference", "layers", "train", "export", "network", "report", "cli", "python"]
FLOORS = {"core/numerics": 0, "core/blocks": 1, "core": 2, "core/detail": 2, "core/io": 3, "core/backend": 4,
          "core/ops": 5}
GROUND = {"core/error.h", "core/detail/check.h"}  # every level throws these
TABLE = "core/backend/kernels.h"
NOT_INSTALLED = re.compile(r"/(detail|backend|kernels|reader|writer)/")  # as in cmake/FakequantLibrary.cmake
MOST_FILES = 40
INCLUDE = re.compile(r'^\s*#\s*include\s*"fakequant/([^"]+)"', re.M)
JSON_TEXT = "core/io/detail/json_text.h"
WHOLE = r"(int|long|unsigned|Shape|std::(vector<std::)?(u?int\d+|size|ptrdiff)_t>?)"
CUT_OFF = re.compile(rf"\.(template )?get<{WHOLE}>\(\)|\bget_to\(|\.value\(\"\w+\", *(-?\d+\)|{WHOLE}\{{)")
THREADS = "core/backend/cpu/engine/threads.cpp"
BY_NUMBER = re.compile(r"\bomp_get_(thread_num|num_threads)\b")
NEUTRAL = re.compile(r"(core/backend|reference/kernels)/\w+\.h$")
BACKEND = re.compile(r"\b(cpu|cuda)::|(backend|kernels)/(cpu|cuda)/")
SOURCES = {".h", ".cuh", ".cpp", ".cu"}


def find_room(path):
    """The longest named room of core that holds the file."""
    return max((room for room in FLOORS if path.startswith(room + "/")), key=len)


def climbs(path, included):
    """Why the include may not be, or None."""
    house, other = path.split("/")[0], included.split("/")[0]
    if other not in HOUSE:
        return None if included == "fakequant.h" and house in ("cli", "python") else f"{other} is not in the house"
    if HOUSE.index(other) > HOUSE.index(house):
        return f"{house} stands below {other}"
    if house not in ("cli", "python") and path.endswith(".h") and NOT_INSTALLED.search(included) and not NOT_INSTALLED.search(path):
        return "a public header needs one that is not installed"
    if house != "core" or other != "core" or included in GROUND:
        return None
    room, below = find_room(path), find_room(included)
    if FLOORS[below] <= FLOORS[room]:
        return None
    noun_source = room in ("core", "core/detail") and pathlib.Path(path).suffix == ".cpp"
    if noun_source and (included == TABLE or below == "core/io"):
        return None
    return f"{room} stands below {below}"


def faults(root):
    counts = collections.Counter()
    for house in HOUSE:
        for file in sorted((root / house).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            path = file.relative_to(root).as_posix()
            counts[str(pathlib.Path(path).parent)] += 1
            text = file.read_text()
            if path != JSON_TEXT and (cut := CUT_OFF.search(text)):
                yield f"{path}: {cut[0]} cuts off a number that is too large or no whole one: use whole_value"
            if path != THREADS and (own := BY_NUMBER.search(text)):
                yield f"{path}: {own[0]} divides a loop by hand: use `omp for`, which any size of a team completes"
            if NEUTRAL.match(path) and (named := BACKEND.search(text)):
                yield f"{path}: names a backend ({named[0]}): use a type of fq::detail"
            for included in INCLUDE.findall(text):
                if not (root / included).is_file():
                    yield f"{path}: there is no {included}"
                elif reason := climbs(path, included):
                    yield f"{path}: includes {included}: {reason}"
    if not counts:
        yield f"{root} has no sources"
    for folder, count in counts.items():
        if count > MOST_FILES:
            yield f"{folder}: {count} files stand side by side, at most {MOST_FILES}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "every include points down")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
