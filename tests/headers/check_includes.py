"""check_includes.py SOURCE_DIR LIST: public headers include the standard library, json_fwd.hpp and each other,
and fakequant.h includes them all."""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def faults(root, header, public):
    for name in INCLUDE.findall((root / header).read_text()):
        ours = name.removeprefix("fakequant/")
        if ours != name:
            if ours not in public and not ours.endswith("-inl.h"):
                yield f"{header}: includes {name}, which is not a public header"
        elif not re.fullmatch(r"[a-z_0-9]+|nlohmann/json_fwd\.hpp", name):
            yield f"{header}: includes {name}; allowed are the standard library, fakequant and nlohmann/json_fwd.hpp"


def missing(root, public):
    included = INCLUDE.findall((root / "fakequant.h").read_text())
    for header in public:
        if "fakequant/" + header not in included:
            yield f'fakequant.h: add #include "fakequant/{header}", or move it below detail/'


def main():
    root = pathlib.Path(sys.argv[1])
    public = pathlib.Path(sys.argv[2]).read_text().split()
    found = [fault for header in public + ["fakequant.h"] for fault in faults(root, header, set(public))]
    found += missing(root, public)
    print("\n".join(found) or f"{len(public)} public headers")
    return bool(found) or not public


if __name__ == "__main__":
    sys.exit(main())
