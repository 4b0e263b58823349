"""The report of scripts/accuracy --peers, of results made up: means, pairs of the same seed, the better rate, the picture;
and rejected input. Standard library only."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SOURCE = sys.argv[1]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "bench"))
from accuracy import chart, compare, tables  # noqa: E402
from accuracy import text as texts  # noqa: E402


def result(tool, format, seed, qat, ptq=50.0, **more):
    return {"data": "letters", "tool": tool, "format": format, "seed": seed, "ptq": ptq, "qat": qat, **more}


RESULTS = [
    {"data": "letters", "tool": "float", "format": "float", "seed": 1, "qat": 90.0},
    {"data": "letters", "tool": "float", "format": "float", "seed": 2, "qat": 92.0},
    result("fakequant", "w4a4", 1, 89.5), result("fakequant", "w4a4", 2, 91.0),
    result("fakequant", "w2a2", 1, 80.0), result("fakequant", "w2a2", 2, 82.0),
    result("expert", "w4a4", 1, 70.0, rate=1e-3), result("expert", "w4a4", 2, 70.0, rate=1e-3),
    result("expert", "w4a4", 1, 89.0, rate=4e-3), result("expert", "w4a4", 2, 91.5, rate=4e-3),
    result("expert", "w2a2", 1, 20.0, rate=4e-3),
    {"data": "letters", "tool": "torchao", "format": "w4a4", "seed": 1, "rate": 1e-3, "reason": "linear layers alone"},
]

figures = tables.summary(RESULTS)
ours, expert = (figures["letters", "w4a4", tool] for tool in ("fakequant", "expert"))
assert ours["qat"]["mean"] == -0.75 and abs(ours["qat"]["sd"] - 0.125**0.5) < 1e-12 and "ours_minus_it" not in ours, ours
assert expert["rate"] == 4e-3 and expert["ours_minus_it"]["runs"] == [0.5, -0.5], expert
assert figures["letters", "w2a2", "expert"]["seeds"] == 1, "seeds that are not there yet are left out"

text = tables.markdown(RESULTS)
assert "| letters, 91.00, 2 | W4A4 | -41.00, -0.75 ± 0.35 | -41.00, -0.75 ± 0.35 (+0.00) |" in text, text
assert "-70.00 ± 0.00 (+60.00), seeds: 1 |" in text, text
assert "* torchao, W4A4: linear layers alone" in text, text

with tempfile.TemporaryDirectory() as folder:
    tables.write({"results": RESULTS}, folder)
    assert sorted(os.listdir(folder)) == ["letters.svg", "peers.json", "peers.md"], os.listdir(folder)
    names = [node.text for node in xml.parse(f"{folder}/letters.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert {"fakequant", "expert", "float", "2", "4"} <= set(names) and "torchao" not in names, names
    with open(f"{folder}/peers.json") as file:
        assert {row["tool"] for row in json.load(file)["summary"]} == {"fakequant", "expert"}

    # Jobs with a stored result are not run again.
    kept = compare.Results(f"{folder}/results.jsonl")
    assert kept.once(lambda: {"ptq": 1.0, "qat": 2.0}, data="letters", tool="expert", format="w4a4", seed=1)["qat"] == 2.0
    again = compare.Results(f"{folder}/results.jsonl")
    assert again.once(lambda: sys.exit("run twice"), data="letters", tool="expert", format="w4a4", seed=1)["ptq"] == 1.0

    # Flags are tried on the training part alone, whose own last tenth is held out, several trainings at once on the device.
    reported = []
    texts.run = lambda command, *words: reported.append(words) or '{"metrics": {"bpc": 2.0}}'
    with open(f"{folder}/text.txt", "w") as file:
        file.write("abcdefghij" * 200 + "held out" * 25)
    part = texts.training_part(f"{folder}/text.txt", folder)
    assert texts.read(part) == ("abcdefghij" * 198, 198), texts.read(part)
    where = texts.setting("fakequant", "cuda:1", part, folder)
    assert [words[:3] for words in reported] == [("dataset", "from-text", name) for name in (part, f"{folder}/fine.txt")], reported
    del reported[:]
    found = texts.quantized(where, 3, "gpt.3.h5", "kv8", "--method mse | --lr 0.0005")
    assert found == {"ptq": 2.0, "qat": 2.0} and [words[0] for words in reported] == ["calibrate", "qat", "evaluate", "evaluate"], reported
    assert reported[0][6:-3] == ("--kv", "int8", "--method", "mse", "-o") and reported[0][-2:] == ("--device", "cuda:1"), reported[0]
    assert reported[0][-3] != "gpt.3.kv8.ptq.h5" and reported[0][-3] == reported[1][1], "files of different flags have different names"
    assert "--lr" in reported[1] and "--method" not in reported[1], reported[1]

    texts.TUNING = f"{folder}/tuning"
    options = argparse.Namespace(command="fakequant", text=f"{folder}/text.txt", text_tune=["", "--no"], text_formats=["int8", "fp8"],
                                 device="cuda:1", seeds=2, jobs=3)

    def reject(command, *words):
        if "--no" in words:
            raise RuntimeError("no flag of that name")
        return '{"metrics": {"bpc": 2.0}}'
    texts.run = reject
    lines, failed = texts.compare(options)
    assert failed == 4 and lines.splitlines()[-2:] == ["| INT8 | +0.0000 | +0.0000 | 2 |", "| FP8 | +0.0000 | +0.0000 | 2 |"], lines
    with open(f"{folder}/tuning.cuda1/results.jsonl") as file:
        assert len(list(file)) == 6, "two float networks, two formats from each"

rows = [{"format": "float", "tool": "float", "seed": 1, "ptq": 2.1, "qat": 2.0}]
rows += [{"format": "int8", "tool": tool, "seed": 1, "ptq": 2.2, "qat": qat} for tool, qat in (("fakequant", 2.01), ("| --lr 1", 2.02))]
assert texts.table(rows).splitlines()[-2:] == ["| INT8 | +0.2000 | +0.0100 | 1 |", "| INT8: `\\| --lr 1` | +0.2000 | +0.0200 | 1 |"]

assert chart.spread([10.0, 10.0, 30.0], 17, 0, 100) == [10.0, 27.0, 44.0]
assert chart.spread([95.0, 99.0], 17, 0, 100) == [83.0, 100.0], chart.spread([95.0, 99.0], 17, 0, 100)

for words, expected in [(["--data", "letter"], "--data: no letter among satellite, letters"),
                    (["--formats", "int9"], "--formats: no int9 among int8"), (["--tools", "x"], "--tools: no x among modelopt"),
                    (["--jobs", "2"], "--device and --jobs are flags of --text"), (["--text", "x", "--jobs", "0"], "--jobs: at least 1")]:
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "accuracy"), "--peers", *words], text=True,
                          capture_output=True)
    assert done.returncode == 2 and expected in done.stderr, done
