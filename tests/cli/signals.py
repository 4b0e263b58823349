"""External ends of a command: signals, readers that close, streams that are closed or full, limits of the system."""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, SHORT, TINY, environment, fails, patient, result, run, sanitized, start  # noqa: E402
from forge import StateFile  # noqa: E402

ENDLESS = ["train", *TINY, "--data", DIGITS, "--epochs", "2000"]


def shell(line, *arguments, **more):
    """Runs `line` in bash, where "$@" is the command with these arguments."""
    return subprocess.run(["bash", "-c", line, "bash", COMMAND, *map(str, arguments)], capture_output=True, text=True,
                          env=dict(environment(2), **more), timeout=patient(120))


def one_line(text):
    assert text.startswith("fakequant: [") and text.count("\n") == 1, text
    return text


# Signals save the work of training.
for number, name in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")):
    process = start(*ENDLESS, "-o", f"{name}.h5", "--json")
    assert '"epoch"' in process.stdout.readline() and '"epoch"' in process.stdout.readline()
    os.remove(f"{name}.h5")  # a later file was saved because of the signal
    process.send_signal(number)
    _, errors = process.communicate(timeout=patient(60))
    assert process.returncode == 128 + number, (name, process.returncode, errors)
    assert f"stopped by {name}" in one_line(errors) and "--resume" in errors, errors
    assert result("inspect", f"{name}.h5")["kind"] == "checkpoint"

# nohup's SIGHUP stays ignored.
process = subprocess.Popen(["bash", "-c", 'trap "" HUP; exec "$@"', "bash", COMMAND, *ENDLESS, "-o", "nohup.h5", "--json"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(2))
process.stdout.readline()
process.send_signal(signal.SIGHUP)
assert all('"epoch"' in process.stdout.readline() for _ in range(3))
process.send_signal(signal.SIGTERM)
process.communicate(timeout=patient(60))
assert process.returncode == 143, process.returncode

# A child is ended too, and its folder put away.
with open("engine", "w") as file:
    file.write("#!/bin/bash\ntouch started\nexec sleep 600\n")
os.chmod("engine", 0o755)
run("train", *SHORT, "-o", "float.h5")
run("export", "float.h5", "--format", "onnx", "-o", "float.onnx")
os.makedirs("temporary")
process = subprocess.Popen([COMMAND, "verify", "float.onnx", "--checkpoint", "float.h5", "--data", DIGITS, "--python", "./engine"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env=dict(environment(2), TMPDIR=os.path.abspath("temporary")))
while not os.path.exists("started"):
    assert process.poll() is None, process.communicate()
    time.sleep(0.05)
process.send_signal(signal.SIGTERM)
_, errors = process.communicate(timeout=patient(60))
assert process.returncode == 143 and "SIGTERM" in one_line(errors), (process.returncode, errors)
assert os.listdir("temporary") == [], os.listdir("temporary")

# A reader who goes does not take the work along.
done = shell('"$@" | head -1; exit ${PIPESTATUS[0]}', "train", *TINY, "--data", DIGITS, "--epochs", "4", "-o", "piped.h5")
assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1, done
assert StateFile("piped.h5").attributes["progress/epoch"] == 4

# Errors that cannot be printed have the same exit status.
for stream in ("2>&-", "2>/dev/full", ">&- 2>&-"):
    assert shell(f'"$@" {stream}', "evaluate", "nowhere.h5", "--data", DIGITS).returncode == 2, stream
    assert shell(f'"$@" {stream}', "tarin").returncode == 2, stream
assert shell('"$@" >/dev/full', "--help").returncode == 1
assert shell('"$@" >/dev/full', "train", "--help").returncode == 1

# No file takes the number of a stream that is closed.
line = ["train", *SHORT, "-o", "closed.h5"]
for streams in ("<&- >&- 2>&-", ">&-", "<&- >&-"):
    done = shell(f'"$@" {streams}', *line)
    assert done.returncode == 0, (streams, done)
    with open("closed.h5", "rb") as a, open("float.h5", "rb") as b:
        assert a.read() == b.read(), f"{streams}: something else is in the file"
done = shell('"$@" <&- >&- 2>&-', "predict", "float.h5", "--data", DIGITS, "-o", "predicted.h5")
assert done.returncode == 0 and StateFile("predicted.h5").places["logits"][1] == 360 * 10 * 4

# Limits of the system.
done = shell('"$@"', "evaluate", "float.h5", "--data", DIGITS, "--batch", "360", OMP_NUM_THREADS="100000")
assert done.returncode == 0 and "OMP_NUM_THREADS is 100000" in done.stderr and "--threads" in done.stderr, done
done = shell('"$@"', "train", *TINY, "--data", DIGITS, "--epochs", "1", "--threads", "2", "-o", "threads.h5",
             OMP_NUM_THREADS="100000")
assert done.returncode == 0, done
limited = () if sanitized() else (["evaluate", "float.h5", "--data", DIGITS], ["--version"])
for arguments in limited:
    # With 100 MiB the CUDA library, which notes its kernels before there is a command, overflows.
    for limit, expected in (("ulimit -v 131072", "ulimit -v"), ("ulimit -s 32", "ulimit -s")):
        assert expected in fails(1, "limited to", *arguments, limits=limit)
    # With 16 KiB the dynamic loader itself overflows once in some sixty starts, before there is a command.
    starts = (run(*arguments, status=None, limits="ulimit -s 16") for _ in range(5))
    done = next(done for done in starts if (done.returncode, done.stderr) != (-signal.SIGSEGV, ""))
    assert done.returncode == 1 and "ulimit -s" in one_line(done.stderr), done
print("signals: ok")
