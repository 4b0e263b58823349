"""Scales go out to other programs and come back: scales files, TensorRT's cache, safetensors, --import."""

import json
import os
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, events, fails, result, run  # noqa: E402

DATA = ["--data", DIGITS]


def write_safetensors(path, tensors, **header):
    """Writes f32 tensors by name; `header` replaces entries of the right header."""
    entries, end = {}, 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        entries[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(dict(entries, **header)).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(v.astype("<f4").tobytes() for v in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as file:
        contents = file.read()
    begin = 8 + struct.unpack("<Q", contents[:8])[0]
    types = {"F32": np.float32, "I8": np.int8, "I32": np.int32}
    return {name: np.frombuffer(contents[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]],
                                types[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(contents[8:begin]).items() if name != "__metadata__"}


def scales(prefix):
    with open(prefix + "_scales.json") as file:
        return json.load(file)


run("train", *SHORT, "-o", "float.h5")
for target in ("ort", "tensorrt"):
    run("calibrate", "float.h5", *DATA, "--target", target, "-o", target + ".h5")

# Scales files: bias codes, shapes, clipped values of real data.
run("export", "ort.h5", *DATA, "--split", "test", "-o", "ort")
run("export", "ort.h5", "-o", "plain")
found = {q["name"]: q for q in scales("ort")["quantizers"]}
assert "clipped" not in json.dumps(scales("plain")) and "clipped" not in found["fc.output_quantizer"]
first = found["conv1.input_quantizer"]
with h5py.File(DIGITS) as file:
    x = file["test/x"][()].astype(np.float32) * np.float32(file["test/x"].attrs.get("scale", 1))
assert first["count"] == x.size and first["clipped"] == int((x > np.float32(first["amax"])).sum())
assert found["conv1.weight_quantizer"]["scale_shape"] == [8, 1, 1, 1]
with h5py.File("ort_scales.h5") as file, h5py.File("ort.h5") as checkpoint:
    for layer in scales("ort")["layers"]:
        name = layer["name"]
        bias, grid = checkpoint[f"parameters/{name}.bias"][()], file[name + "/sum_scale"][()]
        assert (np.rint(bias / grid) == file[name + "/bias_codes"][()]).all(), name
        assert layer["bias_codes"] == file[name + "/bias_codes"][()].tolist(), name

# TensorRT's calibration cache.
run("export", "tensorrt.h5", "-o", "tensorrt")
wanted = {q["name"]: q["scale"] for q in scales("tensorrt")["quantizers"]
          if q["enabled"] and "weight" not in q["name"]}
made = result("export", "tensorrt.h5", "--format", "trt-cache", "--trt-version", "100300", "-o", "cache/")
with open("cache/calibration.cache") as file:
    header, *lines = file.read().splitlines()
assert header == "TRT-100300-EntropyCalibration2" and made["scales"] == len(lines)
cache = {name: struct.unpack(">f", bytes.fromhex(scale))[0] for name, scale in (line.rsplit(": ", 1) for line in lines)}
assert cache == wanted, (cache, wanted)
run("export", "tensorrt.h5", "--format", "trt-cache", "--calibrator", "minmax", "-o", "minmax.cache")
with open("minmax.cache") as file:
    assert file.readline() == "TRT-8601-MinMaxCalibration\n"
fails(2, ["uint8", "--target tensorrt"], "export", "ort.h5", "--format", "trt-cache", "-o", "x")
fails(2, "nodir", "export", "tensorrt.h5", "--format", "trt-cache", "-o", "nodir/x")
fails(2, ["--calibrator", "'minmax'"], "export", "tensorrt.h5", "--format", "trt-cache", "--calibrator", "minmx", "-o", "x")

# safetensors under ModelOpt's names.
made = result("export", "tensorrt.h5", "--format", "safetensors", "-o", "hf/")
assert made["quant_algo"] == "W8A8_SQ_PER_CHANNEL" and sorted(os.listdir("hf")) == [
    "hf_quant_config.json", "model.safetensors"]
tensors = read_safetensors("hf/model.safetensors")
assert len(tensors) == made["tensors"]
with h5py.File("tensorrt.h5") as checkpoint:
    for name in ("conv1", "conv2", "conv3", "features", "fc"):
        w, s = checkpoint[f"parameters/{name}.weight"][()], tensors[name + ".weight_scale"]
        codes = np.clip(np.rint(w / s.reshape(-1, *[1] * (w.ndim - 1))), -127, 127)
        assert (codes == tensors[name + ".weight"]).all(), name
        assert tensors[name + ".input_scale"] == np.float32(wanted[name + ".input_quantizer"]), name
        assert tensors[name + ".bias_code"].dtype == np.int32
fails(2, ["'conv1'", "uint8", "fp8"], "export", "ort.h5", "--format", "safetensors", "-o", "x")
fails(2, "nodir", "export", "tensorrt.h5", "--format", "safetensors", "-o", "nodir/x")

# Ranges that were calibrated elsewhere.
with h5py.File("tensorrt_scales.h5") as file:
    ranges = {q["name"]: file[q["name"] + "/amax"][()] for q in scales("tensorrt")["quantizers"] if "amax" in q}
state = {name + "._amax": v.reshape(-1, *[1] * 3) if v.ndim else v for name, v in ranges.items()}
write_safetensors("state.safetensors", dict(state, **{"conv1.weight": np.zeros(3, np.float32)}))
imported = ["calibrate", "float.h5", "--target", "tensorrt", "--import", "state.safetensors", "-o", "imported.h5"]
event = events(*imported)[0]
assert event["event"] == "import" and sorted(event["set"]) == sorted(ranges) and not event["missing"] + event["unused"]
run("export", "imported.h5", "-o", "imported")
assert scales("imported") == scales("tensorrt")
assert result("evaluate", "imported.h5", *DATA)["loss"] == result("evaluate", "tensorrt.h5", *DATA)["loss"]

write_safetensors("some.safetensors", {"fc._input_quantizer._amax": np.float32([3]), "cf.input_quantizer._amax": np.float32([1])})
some = ["calibrate", "float.h5", "--target", "tensorrt", "--import", "some.safetensors", "-o", "some.h5"]
fails(2, ["some.safetensors", "conv1.input_quantizer", "more", "--data"], *some)
assert "not used: cf.input_quantizer._amax" in run(*some, *DATA).stdout
run("export", "some.h5", "-o", "some")
for q in scales("some")["quantizers"]:
    if q["name"] in ranges:
        wanted = 3.0 if q["name"] == "fc.input_quantizer" else ranges[q["name"]].tolist()
        assert q["amax"] == wanted, q["name"]

bad = ["calibrate", "float.h5", "--import", "bad.safetensors", "-o", "out.h5"]
write_safetensors("bad.safetensors", dict(state, **{"conv2.weight_quantizer._amax": np.ones(3, np.float32)}))
fails(2, ["conv2.weight_quantizer", "3 elements", "[8, 1, 1, 1]"], *bad)
write_safetensors("bad.safetensors", dict(state, **{"fc.input_quantizer._amax": np.float32(-1)}))
fails(2, ["fc.input_quantizer._amax", "-1"], *bad)
write_safetensors("bad.safetensors", state, hole={"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]})
fails(2, ["bad.safetensors", "header is damaged", "hole"], *bad)
for contents in (b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}" + b"x", b"\x01" + b"\0" * 7 + b"["):
    with open("bad.safetensors", "wb") as file:
        file.write(contents)
    fails(2, "bad.safetensors", *bad)
fails(2, "nowhere.safetensors", "calibrate", "float.h5", "--import", "nowhere.safetensors", "-o", "out.h5")
fails(2, "--data", "calibrate", "float.h5", "-o", "out.h5")
print("scales: ok")
