"""verify believes a report only when it is whole: every key of its type, every quantizer compared, a verdict that fits."""

import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, result, run  # noqa: E402
from engine import program, right_report, write  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
write("net.onnx", "any file: the stand-in reads none")
reporter = program("reporter", 'cp report.json "$json"; exit $(cat status)')
verify = ["verify", "net.onnx", "--checkpoint", "int8.h5", "--data", DIGITS, "--python", reporter]
right = right_report("int8.h5")
quantizers = list(right["compared"])
assert len(quantizers) >= 4, right


def given(report, status=0):
    write("report.json", report)
    write("status", str(status))


given(right)
found = result(*verify)
assert found["codes"] == right["codes"] > 0 and found["same"] and found["checkpoint"] == "int8.h5", found


def expect_error(expected, report, status=0):
    given(report, status)
    line = fails(1, expected, *verify)
    assert "--python" in line and "json.exception" not in line, line


for text in ["", "nothing", "{", '{"codes": NaN}', "\0\1", '{"codes": 1e999}']:
    expect_error("is not JSON", text)
expect_error("nests too deep", "[" * 100000)
for text in ["[]", "null", "3", '"text"']:
    expect_error("an object is needed", text)
expect_error("has no 'samples'", {})
expect_error("bytes, at most", " " * (33 << 20))
write("report.json", right)

# Every key: left out, and of other types and out of range.
ALLOWED = {"max_abs_diff": [None, 1e300, 2**70], "tolerance": [1e300, 2**70], "code_tolerance": [1e300, 2**70],
           "flip_tolerance": [1e300, 2**70],
           "first_difference": [None, {}], "folded": [None], "engine": ["text"], "level": ["text"], "session_options": [{}],
           "kernels": [{}], "float_kernels": [[1]], "different": [{}], "largest_steps": [{}], "not_compared": [{}]}
for key in right:
    other = {name: value for name, value in right.items() if name != key}
    expect_error(f"has no '{key}'", other)
    for value in [None, "text", -1, 1e300, 2**70, {}, [1]]:
        if value not in ALLOWED.get(key, []):
            expect_error(key, dict(right, **{key: value}))

# Each quantizer: not compared, compared in part, not at all, or unknown.
for name in quantizers:
    report = copy.deepcopy(right)
    codes = report["compared"].pop(name)
    expect_error(f"the codes of '{name}' were not compared", dict(report, codes=right["codes"] - codes))
    for count in [0, codes - 1, codes + 1, -codes, None, "all"]:
        expect_error(name, dict(report, compared=dict(report["compared"], **{name: count})))
    report["different"] = {name: 1}
    expect_error("not compared", dict(report, not_compared={name: codes}, codes=right["codes"] - codes))
    del report["different"][name]
    for count in [0, codes - 1, codes + 1, None]:
        expect_error(name, dict(report, not_compared={name: count}, codes=right["codes"] - codes))
expect_error("the checkpoint has no quantizer 'other'", dict(right, compared=dict(right["compared"], other=5)))
expect_error("'codes'", dict(right, codes=0))
expect_error("'codes_different'", dict(right, codes_different=1))

# The verdict must match the counts and the exit status.
one = {quantizers[0]: 1}
expect_error("of counts that differ", dict(right, codes_different=1, different=one))
expect_error("of counts that differ", dict(right, logit_bits_different=1))
expect_error("but the exit status was 1", right, 1)
expect_error("but the exit status was 0", dict(right, same=False))
report = dict(right, compared={name: codes for name, codes in right["compared"].items() if name != quantizers[0]})
report["codes"] = sum(report["compared"].values())
absent = dict(report, not_in_file=[quantizers[0]])
expect_error("of counts that differ", absent)
given(dict(absent, same=False, reasons=["a reason"], ways=["a way"]), 1)
fails(1, "net.onnx does not compute what int8.h5 does: a reason: a way", *verify)
given(dict(report, not_compared={quantizers[0]: right["compared"][quantizers[0]]}))  # the engine does not compute these
result(*verify)
given(dict(right, same=False, codes_different=1, different=one), 1)
fails(1, "does not compute", *verify)

# With live batch norms the folded network is compared too.
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--keep-bn", "-o", "live.h5")
verify[verify.index("int8.h5")] = "live.h5"
live = right_report("live.h5", folded=True)
given(live)
result(*verify)
expect_error("'folded'", dict(live, folded=None))
for key in live["folded"]:
    expect_error(f"has no '{key}'", dict(live, folded={name: value for name, value in live["folded"].items() if name != key}))
