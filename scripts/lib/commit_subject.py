#!/usr/bin/env python3
"""commit_subject.py FILE | --since BASE: checks commit subjects, of a message file (a commit-msg hook) or of the commits after BASE.

A subject is `scope: verb object` with at most 65 characters, without a full stop: "core: fuse mask into bias gradient".
"""
import re
import subprocess
import sys

MOST = 65
FORM = re.compile(r"[A-Za-z][\w./+-]*(, [\w./+-]+)*: \S.*[^.\s]")


def fault(subject):
    """The reason why a subject is wrong, or None."""
    if re.match(r"(Merge|Revert|fixup!|squash!) ?", subject):
        return None
    if len(subject) > MOST:
        return f"{len(subject)} characters, at most {MOST} are allowed"
    return None if FORM.fullmatch(subject) else "expected `scope: verb object` without a full stop"


def subjects(arguments):
    if arguments[0] != "--since":
        with open(arguments[0], encoding="utf-8") as file:
            return [next((line.rstrip("\n") for line in file if not line.startswith("#")), "")]
    done = subprocess.run(["git", "log", "--format=%s", f"{arguments[1]}..HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main(arguments):
    if len(arguments) != 1 + (arguments[:1] == ["--since"]):
        sys.exit(__doc__)
    faults = [(subject, reason) for subject in subjects(arguments) if (reason := fault(subject))]
    for subject, reason in faults:
        print(f"commit subject '{subject}': {reason}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
