"""Commands that run out of memory at selected places that allocate: each ends with one line and exit status 1, or completes,
and every file is unchanged or replaced as a whole. `scripts/crash places` tries all places of all commands."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import sanitized  # noqa: E402
from crash_calls import chosen  # noqa: E402
from failing_places import LIBRARY, try_places  # noqa: E402

if not os.path.exists(LIBRARY) or sanitized():
    print("SKIPPED: no library to load before libc, or a sanitizer that wants to be first")
    sys.exit(77)
copies = sum(try_places(trial, 100, print) for trial in chosen(["train", "export scales"]))
assert copies == 400, f"{copies} copies of a process had no memory"
print(f"failing places: ok ({copies} copies)")
