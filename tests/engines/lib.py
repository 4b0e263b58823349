"""Shared code of the tests of engines."""

import os
import sys

SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "cli", "lib"))
from command import DIGITS, events, fails, result, run  # noqa: E402, F401

HOME = os.environ["FAKEQUANT_ENGINES"]


def needs(name, *files):
    """Skips where the engine has not been made."""
    if not all(os.path.exists(os.path.join(HOME, name, file)) for file in files):
        print(f"SKIPPED: no {name} in {HOME}: python3 -m fakequant.engines.install {name} {HOME} makes it")
        raise SystemExit(77)


def small_gpt(name="gpt.h5"):
    """A gpt of two blocks of width 64 and the data set that it was trained on; the number of its tokens."""
    with open("text.txt", "w", encoding="utf-8") as text:
        text.write("To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n"
                   "The slings and arrows of outrageous fortune,\nOr to take arms against a sea of troubles\n" * 40)
    made = result("dataset", "from-text", "text.txt", "--windows", "32", "-o", "text.h5")
    options = '{"layers": 2, "width": 64, "heads": 2, "context": 32}'
    run("train", "--data", "text.h5", "--model", "gpt", "--model-options", options, "--epochs", "2", "-o", name)
    return made["vocabulary"]
