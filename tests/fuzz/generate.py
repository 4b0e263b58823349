"""Makes the binary part of the readers' corpus again: FAKEQUANT=build/release/bin/fakequant /usr/bin/python3
tests/fuzz/generate.py. Needs numpy and h5py. Text files of the corpus are written by hand."""

import glob
import json
import os
import shutil
import struct
import subprocess
import tempfile

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
FAKEQUANT = os.path.abspath(os.environ["FAKEQUANT"])
random = np.random.default_rng(0)


def block_position(reader, name):
    os.makedirs(f"{HERE}/corpus/{reader}", exist_ok=True)
    return f"{HERE}/corpus/{reader}/{name}"


def crc32c(contents):
    crc = 0xFFFFFFFF
    for byte in contents:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def remove_structure(name):
    """Removes the HDF5 structure of a state file, a third of its bytes: our readers use only the listing."""
    with open(name, "rb") as file:
        header, rest = bytearray(file.read(512)), file.read()
    listing = json.loads(rest[-struct.unpack_from("<Q", header, 24)[0] :])
    body = b""
    for entry in listing:
        start = entry["offset"] - 512
        entry["offset"] = 512 + len(body)
        body += rest[start : start + entry["bytes"]]
    text = json.dumps(listing, separators=(",", ":")).encode()
    body += text
    struct.pack_into("<IQQI", header, 12, crc32c(body), len(body), len(text), crc32c(text))
    struct.pack_into("<I", header, 508, crc32c(header[:508]))
    with open(name, "wb") as file:
        file.write(header + body)


def run(*arguments):
    subprocess.run([FAKEQUANT, *arguments], check=True, stdout=subprocess.DEVNULL)


def digits(name, count, **attributes):
    """A small data set of images [1, 8, 8] of four classes."""
    with h5py.File(name, "w", libver="earliest") as file:
        x = file.create_dataset("train/x", data=random.integers(0, 255, (count, 1, 8, 8), np.uint8), **attributes)
        x.attrs["scale"] = 1 / 255
        file["train/y"] = np.arange(count) % 4
        file["train"].attrs["classes"] = 4


digits(block_position("dataset", "plain.h5"), 16)
digits(block_position("dataset", "gzip.h5"), 16, chunks=(8, 1, 8, 8), compression="gzip", shuffle=True, fletcher32=True)

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    digits("digits.h5", 64)
    common = ["--data", "digits.h5"]
    shape = ["--model", "cnn", "--model-options", '{"widths": [2, 2, 2]}', "--epochs", "1", "--batch", "16"]
    run("train", *common, *shape, "-o", "float.h5")
    run("calibrate", "float.h5", *common, "--preset", "int8", "-o", block_position("checkpoint", "int8.h5"))
    run("compress", block_position("checkpoint", "int8.h5"), "-o", block_position("checkpoint", "compressed.h5"))
    run("calibrate", "float.h5", *common, "--preset", "int8", "--state", block_position("calibration", "max.h5"), "-o", "out.h5")
    int8 = block_position("checkpoint", "int8.h5")
    resumed = ["--data", block_position("dataset", "plain.h5"), "--batch", "4", "--val-fraction", "0.25", "--epochs", "1"]
    average = ["--ema", "0.9", "--set", "patience=3", "--schedule", "plateau", "--amax", "learned"]
    run("qat", int8, *resumed, *average, "-o", block_position("run", "average.h5"))
    run("qat", int8, *resumed, "--lora", "1", "--optimizer", "sgd", "--set", "optimizer.momentum=0.9", "-o", block_position("run", "adapters.h5"))
    run("export", int8, "-o", "scales")
    shutil.copy("scales_scales.h5", block_position("scales", "int8.h5"))
    for best in glob.glob(block_position("run", "*.best.h5")):
        os.remove(best)
    states = [("checkpoint", "compressed"), ("calibration", "max"), ("scales", "int8"), ("run", "average"), ("run", "adapters")]
    for name in (int8, *(block_position(reader, f"{state}.h5") for reader, state in states)):
        remove_structure(name)
    run("export", int8, "--format", "onnx", "-o", block_position("onnx", "int8.onnx"))
    with open(block_position("onnx", "int8.onnx"), "rb") as file, open(block_position("onnx", "refused_name_of_lines.onnx"), "wb") as broken:
        broken.write(file.read().replace(b"conv1.weight_quantizer.scale", b"conv1.weight\nquantizer.scale", 1))
    run("calibrate", "float.h5", *common, "--preset", "int8", "--target", "tensorrt", "-o", "trt.h5")
    run("export", "trt.h5", "--format", "safetensors", "-o", "packed.safetensors")
    shutil.copy("packed.safetensors", block_position("safetensors", "int8.safetensors"))
    run("export", "trt.h5", "--format", "trt-cache", "-o", block_position("tensorrt", "entropy.cache"))
    for kind in ("gpt2", "qwen2"):
        run("import", f"{SOURCE}/tests/data/transformers/{kind}", "--input-shape", "4", "-o", f"{kind}.h5")
        run("export", f"{kind}.h5", "--format", "gguf", "-o", block_position("gguf", f"{kind}.gguf"))

values = random.normal(size=(4, 3, 2))
for dtype in ("f4", ">i2", "?", "f2"):
    np.save(block_position("npy", f"{np.dtype(dtype).name}.npy"), values.astype(dtype))
np.save(block_position("npy", "refused_text.npy"), np.array(["ab", "c"]))
np.save(block_position("npy", "fortran.npy"), np.asfortranarray(values))
with open(block_position("npy", "refused_wide_text.npy"), "wb") as file:  # four bytes a text, where 32 bits overflow
    np.lib.format._write_array_header(file, {"descr": "<U1073741825", "fortran_order": False, "shape": (1,)})
    file.write(b"a\0\0\0")
for name in ("byte_level", "llama", "unigram"):
    with open(f"{SOURCE}/tests/data/tokenizers/{name}.json") as file:
        tokenizer = json.load(file)
    with open(block_position("tokenizer", f"{name}.json"), "w") as file:
        json.dump(tokenizer, file, ensure_ascii=False, separators=(",", ":"))
