"""Tests of the command (tests/cli) that say no device, with --device cuda: what works on the CPU works there."""

import concurrent.futures
import os
import subprocess
import sys

SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
# Excluded: calibration in parts, and tests with bounds measured on CPU sums. On a GPU sums depend on the shape of a batch.
TESTS = ["attention_codes", "classes", "compress", "data_words", "determinism", "distillation", "generate", "init_weights", "inputs",
         "low_bits", "low_rank", "one_output", "optimizers", "packed_weights", "pairs", "quantizer_warnings",
         "recipes_of_training", "resume", "scales", "sensitivity", "tasks", "text_windows", "weight_algorithms"]
COMPUTING = ("train", "import", "fold", "calibrate", "sensitivity", "qat", "evaluate", "predict", "generate", "compress", "export", "run")

with open("command", "w") as file:
    file.write(f"""#!/usr/bin/env bash
computing=' {" ".join(COMPUTING)} '
[[ $computing == *" $1 "* && " $* " != *" --device"* && " $* " != *" --help "* ]] && set -- "$@" --device cuda
exec "{os.environ["FAKEQUANT"]}" "$@"
""")
os.chmod("command", 0o755)
environment = dict(os.environ, FAKEQUANT=os.path.abspath("command"))


def failure(name):
    """The message of a failed test; None if it passed, or was skipped (then the reason is printed)."""
    os.makedirs(name)
    script = os.path.join(SOURCE, "tests", "cli", name + ".py")
    done = subprocess.run([sys.executable, script], cwd=name, env=environment, capture_output=True, text=True)
    if done.returncode == 77:
        print(f"{name}: {done.stdout.strip()}")
    return None if done.returncode in (0, 77) else f"{name}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 4)) as pool:
    failures = [found for found in pool.map(failure, TESTS) if found]
assert not failures, "\n".join(failures)
print(f"commands: ok, {len(TESTS)} tests")
