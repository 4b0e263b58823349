"""scripts/accuracy --text: a character GPT in every format, in bits per character above a float network that was fine-tuned for
the same number of steps. Each result is stored as one line of JSON and not computed again; each device has its own folder. With
--text-tune, flags are compared on the last tenth of the training text instead of the held-out text; networks do not train on it."""

import json
import os
import shlex
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .compare import Results, tell
from .own import run

FOLDER, TUNING = "build/accuracy/text", "build/accuracy/text_tuning"
DEFAULTS = "fakequant"  # the tool of results without flags
MODEL = '{"layers": 4, "width": 128, "heads": 4, "context": 64}'
WINDOW, BATCH, FLOAT_RATE, FINE_RATE, FINE_STEPS = 64, 32, 3e-3, 3e-4, 300


# name -> (label, preset, flags of calibration)
FORMATS = {
    "int8": ("INT8", "int8", ()),
    "fp8": ("FP8", "fp8", ()),
    "mxfp8": ("MXFP8", "mxfp8", ()),
    "w4a8": ("W4A8", "w4a8", ()),
    "8da4w": ("8da4w, groups of 32", "8da4w", ()),
    "q4_0": ("Q4_0", "q4_0", ()),
    "w3a8": ("W3A8", "w3a8", ()),
    "w2g32": ("2-bit weights, groups of 32", "int2_blockwise", ()),
    "w2a8": ("W2A8", "w2a8", ()),
    "w4a4": ("W4A4", "w4a4", ()),
    "nvfp4": ("NVFP4", "nvfp4", ()),
    "mxfp4": ("MXFP4", "mxfp4", ()),
    "kv8": ("INT8, cache INT8", "int8", ("--kv", "int8")),
    "kv4": ("INT8, cache INT4", "int8", ("--kv", "int4")),
    "kv4tensor": ("INT8, cache INT4 of one range", "int8", ("--kv", "int4,per=tensor")),
}


class Setting(NamedTuple):
    """The command, the device and the data files of a comparison."""
    command: str
    device: str
    whole: str
    fine: str

    def run(self, *words):
        return run(self.command, *words, "--device", self.device)


def read(text):
    """The characters, and how many of the last ones are held out."""
    with open(text, encoding="utf-8") as file:
        characters = file.read()
    return characters, len(characters) // 10


def training_part(text, folder):
    """As a file of its own."""
    path = os.path.abspath(f"{folder}/training.txt")
    characters, held_out = read(text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(characters[:-held_out])
    return path


def setting(command, device, text, folder):
    """Writes the data sets (the whole text with its last tenth held out; the part that fine-tuning reads) and returns a Setting."""
    whole, fine, cut = (os.path.abspath(f"{folder}/{name}") for name in ("text.h5", "fine.h5", "fine.txt"))
    characters, held_out = read(text)
    part, tail = characters[:-held_out][-(FINE_STEPS * BATCH * WINDOW + 1):], characters[-held_out:]
    missing = "".join(sorted(set(characters) - set(part + tail)))
    with open(cut, "w", encoding="utf-8") as file:
        file.write(missing + part[len(missing):] + tail)
    if not os.path.exists(whole):
        run(command, "dataset", "from-text", text, "--windows", WINDOW, "--stride", WINDOW - 1, "-o", whole)
    if not os.path.exists(fine):
        run(command, "dataset", "from-text", cut, "--windows", WINDOW, "--test", held_out / (len(part) + held_out), "-o", fine)
    return Setting(command, device, whole, fine)


def bits(where, checkpoint):
    """A character of the held-out text."""
    lines = where.run("evaluate", checkpoint, "--data", where.whole, "--metrics", "bpc", "--json").splitlines()
    return [line["metrics"]["bpc"] for line in map(json.loads, lines) if "metrics" in line][-1]


def float_networks(where, seed, path):
    """Trained for four epochs, which are 1,988 steps, and then as long as the quantized ones are fine-tuned."""
    tuned = path.replace(".h5", ".tuned.h5")
    shared = ("--batch", BATCH, "--metrics", "bpc", "--seed", seed)
    if not os.path.exists(path):
        where.run("train", "--model", "gpt", "--model-options", MODEL, "--data", where.whole, "--epochs", 4, "--lr", FLOAT_RATE,
                  *shared, "-o", path)
    where.run("train", "--checkpoint", path, "--data", where.fine, "--epochs", 1, "--lr", FINE_RATE, *shared, "-o", tuned)
    return {"ptq": bits(where, path), "qat": bits(where, tuned)}


def quantized(where, seed, path, name, tried=""):
    """Calibrates and fine-tunes one network. `tried`: flags of calibrate, then `|`, then flags of qat."""
    _, preset, flags = FORMATS[name]
    calibrating, _, tuning = tried.partition("|")
    stem = f"{os.path.splitext(path)[0]}.{name}" + (f".{zlib.crc32(tried.encode()):08x}" if tried else "")
    where.run("calibrate", path, "--data", where.whole, "--preset", preset, *flags, *shlex.split(calibrating), "-o", f"{stem}.ptq.h5")
    where.run("qat", f"{stem}.ptq.h5", "--data", where.fine, "--epochs", 1, "--batch", BATCH, "--metrics", "bpc", "--seed", seed,
              *shlex.split(tuning), "-o", f"{stem}.qat.h5")
    return {stage: bits(where, f"{stem}.{stage}.h5") for stage in ("ptq", "qat")}


def mean(values):
    return sum(values) / len(values)


def table(results):
    base = {r["seed"]: r["qat"] for r in results if r["format"] == "float"}
    if not base:
        return "no float network"
    lines = [f"bits a character of the held-out text above the float network, fine-tuned as long: {mean(base.values()):.4f}", "",
             "| format | calibrated | fine-tuned | seeds |", "| --- | --- | --- | --- |"]
    for name, (label, _, _) in FORMATS.items():
        for tool in dict.fromkeys(r["tool"] for r in results if r["format"] == name):
            own = [r for r in results if r["format"] == name and r["tool"] == tool]
            above = [mean([r[stage] - base[r["seed"]] for r in own]) for stage in ("ptq", "qat")]
            flags = "" if tool == DEFAULTS else ": `" + tool.replace("|", "\\|") + "`"
            lines.append(f"| {label}{flags} | {above[0]:+.4f} | {above[1]:+.4f} | {len(own)} |")
    return "\n".join(lines)


def run_parallel(jobs, calls):
    """Runs all calls, `jobs` at a time. Prints failures, continues, and returns their number."""
    def guarded(call):
        try:
            call()
            return 0
        except RuntimeError as error:
            tell(f"failed: {error}")
            return 1
    with ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(guarded, calls))


def compare(options):
    """The table, and how many trainings failed."""
    tried = [flags.strip() for flags in options.text_tune or [""]]
    folder = (TUNING if options.text_tune else FOLDER) + ("" if options.device == "cpu" else f".{options.device.replace(':', '')}")
    os.makedirs(folder, exist_ok=True)
    text = training_part(options.text, folder) if options.text_tune else options.text
    where, results = setting(options.command, options.device, text, folder), Results(f"{folder}/results.jsonl")
    seeds = range(1, options.seeds + 1)
    formats = list(FORMATS) if options.text_formats is None else options.text_formats

    def path(seed):
        return os.path.abspath(f"{folder}/gpt.{seed}.h5")

    def base(seed):
        results.once(lambda: float_networks(where, seed, path(seed)), data="text", tool="float", format="float", seed=seed)

    def one(seed, name, flags):
        results.once(lambda: quantized(where, seed, path(seed), name, flags), data="text", tool=flags or DEFAULTS, format=name,
                     seed=seed)

    failed = run_parallel(options.jobs, [lambda seed=seed: base(seed) for seed in seeds])
    if not failed:
        calls = [(seed, name, flags) for seed in seeds for name in formats for flags in tried]
        failed = run_parallel(options.jobs, [lambda call=call: one(*call) for call in calls])
    return table(list(results.all.values())), failed
