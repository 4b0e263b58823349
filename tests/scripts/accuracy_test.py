"""The report of scripts/accuracy --peers, of results made up: means, pairs of the same seed, the better rate, the picture;
and what the script refuses. Standard library only."""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SOURCE = sys.argv[1]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "scripts", "lib"))
from accuracy import chart, compare, tables  # noqa: E402


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

    # What is kept is not run again.
    kept = compare.Results(f"{folder}/results.jsonl")
    assert kept.once(lambda: {"ptq": 1.0, "qat": 2.0}, data="letters", tool="expert", format="w4a4", seed=1)["qat"] == 2.0
    again = compare.Results(f"{folder}/results.jsonl")
    assert again.once(lambda: sys.exit("run twice"), data="letters", tool="expert", format="w4a4", seed=1)["ptq"] == 1.0

assert chart.spread([10.0, 10.0, 30.0], 17, 0, 100) == [10.0, 27.0, 44.0]
assert chart.spread([95.0, 99.0], 17, 0, 100) == [83.0, 100.0], chart.spread([95.0, 99.0], 17, 0, 100)

for words, says in [(["--data", "letter"], "--data: no letter among satellite, letters"),
                    (["--formats", "int9"], "--formats: no int9 among int8"), (["--tools", "x"], "--tools: no x among modelopt")]:
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "accuracy"), "--peers", *words], text=True,
                          capture_output=True)
    assert done.returncode == 2 and says in done.stderr, done
