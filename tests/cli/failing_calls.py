"""Commands whose calls of the system fail, one at a time, and that are killed at them: every file is as it was, or replaced
whole. scripts/crash lets all of them fail."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, TINY, run, sanitized  # noqa: E402
from crash_calls import crash_calls  # noqa: E402
from failing_calls import LIBRARY, preloaded  # noqa: E402

if not os.path.exists(LIBRARY) or sanitized():
    print("SKIPPED: no library to load before libc, or a sanitizer that wants to be first")
    sys.exit(77)
tried = crash_calls(2, ["train --resume", "export scales"])
assert tried >= 8, f"{tried} calls were tried"

# Memory that is not given: a line that says so.
network = ["train", *TINY, "--data", DIGITS, "--epochs", "1", "--batch", "720", "--threads", "1", "-o", "memory.h5"]
_, count = preloaded(network, ".", FAIL_CALL="malloc", FAIL_BYTES=4096)
os.remove("memory.h5")
refused = 0
for at in range(1, count, max(count // 12, 1)):
    done, _ = preloaded(network, ".", FAIL_CALL="malloc", FAIL_BYTES=4096, FAIL_AT=at, FAIL_WITH=12)
    assert done.returncode in (0, 1, 2), (at, done.returncode, done.stderr)
    assert (done.returncode == 0) == os.path.exists("memory.h5"), (at, done.stderr)
    refused += done.returncode != 0
    if done.returncode == 0:
        os.remove("memory.h5")
print(f"failing calls: ok ({tried} calls, {refused} refusals of memory)")
