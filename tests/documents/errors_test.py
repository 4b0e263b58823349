"""errors_test.py SOURCE_DIR: docs/errors.md quotes messages that the sources throw, and has a part for each of all of them."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
from error_messages import find_messages, find_part, messages, parse_parts  # noqa: E402

# A message's text in a source: string literals of the condition do not belong to it, constants of the file do.
SAMPLE = '''
constexpr const char* kName = "load";
  FQ_CHECK(x != "a, b" && f(y, ')'), kName, "x is {}: use {{1}} "
           "or 2", x);
  throw FileError(path, "", fmt::format("[load] {} is \\"cut\\"", path));
'''
assert [(m.text, m.error, m.line) for m in find_messages("core/sample.cpp", SAMPLE)] == [
    ("[load] x is ...: use {1} or 2", "ArgumentError", 3), ('[load] ... is "cut"', "FileError", 5)]

page = (ROOT / "docs" / "errors.md").read_text()
found, parts = list(messages(ROOT)), parse_parts(page)
assert len(found) > 1000, len(found)
lost = [f"{m.path}:{m.line}" for m in found if find_part(m.path, parts) is None]
assert not lost, f"docs/errors.md has no part for {lost}"
removed = [folder for folder in parts if not (ROOT / folder).is_dir()]
assert not removed, f"docs/errors.md names folders that are not there: {removed}"

rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", page, re.M)
assert len(rows) >= 50 and len(rows) == len(re.findall(r"^\| `", page, re.M)), len(rows)
texts = [m.text for m in found]
changed = [quoted for quoted, _ in rows if not any(quoted in text for text in texts)]
assert not changed, "docs/errors.md quotes messages that are in no source (scripts/errors MESSAGE names the nearest):\n" + "\n".join(changed)

asked = subprocess.run([sys.executable, ROOT / "scripts" / "errors", "[clip] the norm of the gradients is inf: use a smaller rate"],
                       capture_output=True, text=True, check=True).stdout
assert asked.startswith("[clip] the norm of the gradients is ...") and "docs/errors.md, Training" in asked, asked
print("errors: ok,", len(found), "messages,", len(rows), "explained")
