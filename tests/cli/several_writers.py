"""Several processes on one run directory: one writes, the others are rejected with its name, also if the file system has no
locks. A killed process does not block others."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, TINY, environment, patient, run, same_bytes, sanitized, snapshot  # noqa: E402
from failing_calls import LIBRARY, preloaded  # noqa: E402

TRAIN = ["train", *TINY, "--data", DIGITS, "--batch", "720", "--seed", "1", "--threads", "1"]
HOST = socket.gethostname()
NO_LOCKS = {"FAIL_CALL": "flock", "FAIL_AT": "all", "FAIL_WITH": "37"}  # ENOLCK


def writer(folder, **plan):
    """A run that continues until it is killed, after it began to write."""
    more = dict(plan, LD_PRELOAD=LIBRARY) if plan else {}
    process = subprocess.Popen([COMMAND, *TRAIN, "--epochs", "100000", "--resume", "-o", folder], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=dict(environment(1), **more))
    locks = [f"{folder}/.writer.fakequant-{what}" for what in ("lock", "owner")]
    while not (os.path.exists(f"{folder}/checkpoints/last.h5") and any(map(os.path.lexists, locks))):
        assert process.poll() is None, "it ended"
        time.sleep(0.02)
    return process


def end(process, how):
    process.send_signal(how)
    process.wait()


def expect_error(line, process, folder):
    assert line.startswith("fakequant: [") and line.rstrip().count("\n") == 0, line
    for text in (folder, f"process {process.pid} on {HOST}", "name another folder"):
        assert text in line, (text, line)


# With locks.
first = writer("run/")
for more in (["--resume"], ["--force"]):
    expect_error(run(*TRAIN, *more, "-o", "run/", status=1).stderr, first, "run/")
assert "holds a run already" in run(*TRAIN, "--dry-run", "-o", "run/", status=2).stderr
end(first, signal.SIGINT)
assert not any("fakequant-" in path for path in snapshot()), snapshot()
first = writer("run/")
end(first, signal.SIGKILL)
run(*TRAIN, "--epochs", "2", "--force", "-o", "run/")
run(*TRAIN, "--epochs", "2", "-o", "plain.h5")
assert same_bytes("run/checkpoints/last.h5", "plain.h5") and not any("fakequant-" in path for path in snapshot())

# Two that begin at once: one trains, the other is refused, and nothing of it is there.
both = [subprocess.Popen([COMMAND, *TRAIN, "--epochs", "2", "-o", "new/inner/"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         text=True, env=environment(1)) for _ in range(2)]
words = [process.communicate(timeout=patient(300))[1] for process in both]
assert sorted(process.returncode for process in both) in ([0, 1], [0, 2]), words  # 2: it came when the run was whole
assert same_bytes("new/inner/checkpoints/last.h5", "plain.h5")
log = open("new/inner/log.txt").read()
assert len(re.findall("epoch +1", log)) == 1, log

if not os.path.exists(LIBRARY) or sanitized():
    print("SKIPPED: no library to load before libc, or a sanitizer that wants to be first")
    sys.exit(77)

# One that made the folders, and is refused before the other has a file in them, leaves them to it.
def start_paused(call):
    """A run that waits before its first such call until there is a file of that name."""
    process = subprocess.Popen([COMMAND, *TRAIN, "--epochs", "2", "-o", "held/inner/"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True,
                               env=dict(environment(1), LD_PRELOAD=LIBRARY, FAIL_CALL=call, FAIL_AT="1", FAIL_WITH="wait",
                                        FAIL_UNTIL=call))
    while not os.path.exists(f"{call}.waiting"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def let_go(process, call):
    open(call, "w").close()
    return process.communicate(timeout=patient(300))[1]


late, first = start_paused("flock"), start_paused("rename")
assert os.path.isdir("held/inner/checkpoints") and not os.listdir("held/inner/checkpoints"), snapshot()
expect_error(let_go(late, "flock"), first, "held/inner/")
words = let_go(first, "rename")
assert first.returncode == 0 and same_bytes("held/inner/checkpoints/last.h5", "plain.h5"), words

# Without: a word of it, and the same.
done, _ = preloaded([*TRAIN, "--epochs", "2", "-o", "without/"], ".", **NO_LOCKS)
assert done.returncode == 0 and done.stderr.count("has no locks") == 1, done.stderr
assert same_bytes("without/checkpoints/last.h5", "plain.h5") and not any("fakequant-" in path for path in snapshot())
first = writer("without/", **NO_LOCKS)
done, _ = preloaded([*TRAIN, "--force", "-o", "without/"], ".", **NO_LOCKS)
assert done.returncode == 1, done.stderr
expect_error(done.stderr.splitlines()[-1], first, "without/")
assert "remove without/.writer.fakequant-owner" in done.stderr.replace(os.getcwd() + "/", ""), done.stderr
end(first, signal.SIGKILL)
# Its unfinished files stay: without locks other processes cannot know that it ended.
left = {path for path in snapshot() if "fakequant-" in path and not path.endswith("fakequant-owner")}
done, _ = preloaded([*TRAIN, "--epochs", "2", "--force", "-o", "without/"], ".", **NO_LOCKS)
assert done.returncode == 0 and same_bytes("without/checkpoints/last.h5", "plain.h5"), done.stderr
os.symlink("elsewhere 17 4", "without/.writer.fakequant-owner")  # of a host that nothing is known of
done, _ = preloaded([*TRAIN, "--force", "-o", "without/"], ".", **NO_LOCKS)
assert done.returncode == 1 and "process 17 on elsewhere (if it has ended, remove " in done.stderr, done.stderr
os.remove("without/.writer.fakequant-owner")

# A state of calibration: the command waits, with locks and without.
state = ["calibrate", "plain.h5", "--data", DIGITS, "--samples", "32", "--state", "state.h5"]
for at, plan in enumerate(({}, NO_LOCKS)):
    both = [subprocess.Popen([COMMAND, *state, "--skip", str(32 * (2 * at + i))] + (["--merge", "state.h5"] if at else []),
                             stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL,
                             env=dict(environment(1), **(dict(plan, LD_PRELOAD=LIBRARY) if plan else {}))) for i in range(2)]
    words = [process.communicate(timeout=patient(300))[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], words
assert not any("fakequant-" in path for path in snapshot() if path not in left), snapshot()
print("several writers: ok")
