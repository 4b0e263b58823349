"""Commands whose system calls fail one at a time, or that are killed at them: every file is unchanged or replaced
whole. scripts/crash lets all of them fail."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import sanitized  # noqa: E402
from crash_calls import chosen  # noqa: E402
from failing_calls import LIBRARY, try_calls  # noqa: E402

if not os.path.exists(LIBRARY) or sanitized():
    print("SKIPPED: no library to load before libc, or a sanitizer that wants to be first")
    sys.exit(77)
resumed, scales = chosen(["train --resume", "export scales"])
tried = try_calls(resumed, 2) + try_calls(scales, 2)
assert tried >= 8, f"{tried} calls were tried"
print(f"failing calls: ok ({tried} calls)")
