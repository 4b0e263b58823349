"""Files that belong together name each other: files of two different exports are detected, whenever an export was
known by it."""

import itertools
import json
import os
import random
import signal
import struct
import sys
import time

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fresh, run, start  # noqa: E402
from forge import crc32c  # noqa: E402


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def scales_fit(folder):
    with h5py.File(folder + "/scales.h5") as file:
        inside = json.loads(file["attributes"][()])["scales"]
    text = json.loads(read_bytes(folder + "/scales.json"))
    alone = {key: value for key, value in text.items() if key != "id"}
    assert len(text["id"]) == 8 and alone, text["id"]
    return text["id"] == inside["id"]


def packed_fit(folder):
    contents = read_bytes(folder + "/model.safetensors")
    length = struct.unpack("<Q", contents[:8])[0]
    named = json.loads(read_bytes(folder + "/hf_quant_config.json"))["weights_crc32c"]
    return named == f"{crc32c(contents[8 + length:]):08x}"


run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "fp8", "-o", "one.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "fp8", "--samples", "64", "-o", "two.h5")
FORMS = [("scales", ("scales.json", "scales.h5"), scales_fit),
         ("safetensors", ("model.safetensors", "hf_quant_config.json"), packed_fit)]
chance = random.Random(0)
for form, names, fit in FORMS:
    whole, seconds = {}, 0
    for which in ("one", "two"):
        began = time.monotonic()
        run("export", which + ".h5", "--format", form, "-o", fresh(which) + "/")
        seconds = time.monotonic() - began
        whole[which] = tuple(read_bytes(f"{which}/{name}") for name in names)
        assert fit(which)
    # The halves of two exports.
    for which, other in itertools.permutations(("one", "two")):
        fresh("mixed")
        for name, contents in zip(names, (whole[which][0], whole[other][1])):
            with open("mixed/" + name, "wb") as file:
                file.write(contents)
        assert not fit("mixed"), form
    # Killed at any moment: the old pair, the new one, or one that is known as mixed; and no rubbish stays.
    run("export", "one.h5", "--format", form, "-o", fresh("out") + "/")
    for moment in range(12):
        process = start("export", ("two", "one")[moment % 2] + ".h5", "--format", form, "-o", "out/")
        time.sleep(chance.uniform(0.5, 1.0) * seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = tuple(read_bytes("out/" + name) for name in names)
        assert found in whole.values() or not fit("out"), (form, moment)
        left = [name for name in os.listdir("out") if name not in names]
        assert len(left) <= 2 and all("fakequant-" in name for name in left), left
    run("export", "one.h5", "--format", form, "-o", "out/")
    assert sorted(os.listdir("out")) == sorted(names), os.listdir("out")
print("pairs: ok")
