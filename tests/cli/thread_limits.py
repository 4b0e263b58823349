"""OpenMP may start fewer threads than requested. The run then writes the files of a run on that number of threads."""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, english, patient, run, same_bytes  # noqa: E402

#: Settings of OpenMP, and the threads that a loop gets.
SETTINGS = (({"OMP_NUM_THREADS": "2", "OMP_THREAD_LIMIT": "1"}, 1),
            ({"OMP_NUM_THREADS": "4", "OMP_THREAD_LIMIT": "2"}, 2),
            ({"OMP_NUM_THREADS": "2", "OMP_DYNAMIC": "true"}, 2),
            ({"OMP_NUM_THREADS": "4", "OMP_DYNAMIC": "true", "OMP_THREAD_LIMIT": "3"}, 3),
            ({"OMP_NUM_THREADS": "2", "OMP_MAX_ACTIVE_LEVELS": "0"}, 1),
            ({"OMP_NUM_THREADS": "2", "OMP_MAX_ACTIVE_LEVELS": "1"}, 2),
            ({"OMP_NUM_THREADS": "2", "OMP_NESTED": "true", "OMP_THREAD_LIMIT": "2"}, 2))
MODELS = {"mlp": ("{}", DIGITS), "cnn": ('{"widths": [8, 8, 8], "features": 16}', DIGITS), "vit": ("{}", DIGITS),
          "gpt": ('{"layers": 1, "width": 128, "heads": 4, "context": 32}', "text.h5")}


def limited(settings, *arguments):
    """Runs the command. Too few threads once let convolutions wait for ever."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run([COMMAND, *arguments], env=dict(environment, OMP_WAIT_POLICY="passive", **settings),
                          capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, (settings, arguments, done.stderr)
    return done.stderr


with open("text.txt", "w", encoding="utf-8") as file:
    file.write(english(3000))
run("dataset", "from-text", "text.txt", "--windows", "32", "-o", "text.h5")
for model, (options, data) in MODELS.items():
    train = ["train", "--model", model, "--model-options", options, "--data", data, "--batch", "32", "--steps", "3", "--seed", "1"]
    qat = ["qat", "float1.h5", "--preset", "int8", "--data", data, "--batch", "32", "--steps", "3", "--seed", "1"]
    for threads in (1, 2, 3):
        run(*train, "-o", f"float{threads}.h5", threads=threads)
        run(*qat, "-o", f"qat{threads}.h5", threads=threads)
    for settings, threads in SETTINGS:
        for name, command in (("float", train), ("qat", qat)):
            limited(settings, *command, "-o", "limited.h5")
            assert same_bytes("limited.h5", f"{name}{threads}.h5"), f"{name} {model} with {settings} differs from {threads} threads"

# --threads says when it cannot be kept.
evaluate = ["evaluate", "float1.h5", "--data", "text.h5"]
assert "--threads 4: OpenMP gives 2" in limited({"OMP_THREAD_LIMIT": "2"}, *evaluate, "--threads", "4")
assert limited({"OMP_THREAD_LIMIT": "2"}, *evaluate, "--threads", "2") == ""

# SIGTERM stops a run with a limit.
process = subprocess.Popen([COMMAND, "train", "--model", "cnn", "--data", DIGITS, "--epochs", "2000", "-o", "long.h5", "--json"],
                           env=dict(os.environ, OMP_NUM_THREADS="2", OMP_THREAD_LIMIT="1"), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
assert '"epoch"' in process.stdout.readline()
process.send_signal(signal.SIGTERM)
process.communicate(timeout=patient(60))
assert process.returncode == 128 + signal.SIGTERM, process.returncode
print("thread_limits: ok")
