"""Commands interrupted by a power failure: in any state of the disk every file is complete, old or new, and the command resumes.
scripts/crash power resumes from all of them."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import sanitized  # noqa: E402
from power import LIBRARY  # noqa: E402
from power_loss import power_loss  # noqa: E402

if not os.path.exists(LIBRARY) or sanitized():
    print("SKIPPED: no library to load before libc, or a sanitizer that wants to be first")
    sys.exit(77)
states, tried = power_loss(8)
assert states >= 100 and tried >= 20, (states, tried)
print(f"power loss: ok ({states} states, {tried} were resumed)")
