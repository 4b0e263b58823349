"""The Python of verify ends with it: by its own end, by time, and by any signal that ends the command."""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, SHORT, environment, fails, patient, run  # noqa: E402
from engine import program, write  # noqa: E402

os.environ["TMPDIR"] = os.path.abspath("temporary")
os.mkdir("temporary")
run("train", *SHORT, "-o", "float.h5")
write("net.onnx", "any file: the stand-in reads none")
same = ["verify", "net.onnx", "--checkpoint", "float.h5", "--data", DIGITS, "--python"]
LONG = round(patient(100))  # longer than any wait of this test


def alive(pid):
    """Whether it runs; a zombie has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(what, seconds=60):
    end = time.monotonic() + patient(seconds)
    while not what():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def pids(path, count):
    """The process ids in a file, once their number is reached."""
    def there():
        return os.path.exists(path) and len(open(path).read().split()) == count
    until(there)
    return [int(pid) for pid in open(path).read().split()]


hung = program("hung", f"echo $$ > pids; exec sleep {LONG}")
wrapped = program("wrapped", f"echo $$ > pids; sleep {LONG} & echo $! >> pids; wait")

# Timeout: the program and its children are ended.
for python, count in [(hung, 1), (wrapped, 2)]:
    began = time.monotonic()
    errors = run(*same, python, "--timeout", 1, status=1).stderr
    assert "was still running after 1 s" in errors and "--timeout" in errors, errors
    assert time.monotonic() - began < LONG / 2
    for pid in pids("pids", count):
        until(lambda pid=pid: not alive(pid))
    os.remove("pids")
fails(2, "--timeout", *same, hung, "--timeout", "-1")

# By a signal to the command. A program that another one has started is reached where the command can still act.
for number, python, count in [(signal.SIGINT, hung, 1), (signal.SIGINT, wrapped, 2), (signal.SIGTERM, hung, 1),
                              (signal.SIGHUP, hung, 1), (signal.SIGKILL, hung, 1)]:
    command = subprocess.Popen([COMMAND, *same, python], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment(2))
    children = pids("pids", count)
    assert all(map(alive, children)), children
    command.send_signal(number)
    _, errors = command.communicate(timeout=patient(60))
    for pid in children:
        until(lambda pid=pid: not alive(pid))
    os.remove("pids")
    if number == signal.SIGINT:
        assert command.returncode == 130 and "stopped by Ctrl-C" in errors, (command.returncode, errors)
        assert os.listdir("temporary") == [], os.listdir("temporary")
    for left in os.listdir("temporary"):
        subprocess.run(["rm", "-r", os.path.join("temporary", left)], check=True)

# By itself, in ways that are no answer.
ENDS = {"exit 0": "ended with status 0 and wrote no report", "exit 1": "ended with status 1 and wrote no report",
        "echo out of luck >&2; exit 7": "ended with status 7: out of luck", "kill -9 $$": "was ended by signal 9",
        "echo last >&2; kill -11 $$": "was ended by signal 11", 'echo "{}" > "$json"': "has no 'samples'"}
for lines, expected in ENDS.items():
    fails(1, expected, *same, program("ends", lines))
words = program("words", 'printf "%s\\n" "$@" > words; exit 0')
write("-x.onnx", "a name like an option")
run("verify", "--model=-x.onnx", *same[2:], words, "--session=-a=1,b=2", "--threads", 1, status=1)
given = open("words").read().splitlines()
assert "--session=-a=1" in given and "--session=b=2" in given and given[given.index("--") + 1] == "-x.onnx", given
for option in ["x", "a=1,,b=2", "=1"]:
    fails(2, ["--session", "KEY=VALUE"], *same, words, "--session", option)
assert os.listdir("temporary") == []
