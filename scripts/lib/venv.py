#!/usr/bin/env python3
"""scripts/lib/venv.py FOLDER [REQUIREMENTS [--stand-ins]]: a virtual environment with the packages of a list in this folder, or with
ONNX Runtime; made once, and again when its list changes. --stand-ins replaces NVIDIA's libraries that torch is linked to. Exit status
77 if it cannot be made."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
from fakequant.engines import install  # noqa: E402

folder, *more = sys.argv[1:]
requirements = os.path.join(HERE, more[0]) if more else os.path.join(install.HERE, "requirements", "ort.txt")
try:
    install.make_environment(os.path.abspath(folder), requirements, torch_stand_ins="--stand-ins" in more)
except install.Unavailable as error:
    print(f"SKIPPED: {error}")
    raise SystemExit(77) from None
