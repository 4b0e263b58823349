"""Runs killed with SIGKILL and resumed end with the bits of one that was left alone."""

import os
import random
import signal
import subprocess
import time

from command import COMMAND, environment, run, same_bytes


def kill_and_resume(arguments, moments, seed=0, log=lambda text: None):
    """Kills the run at random moments given by their number, resumes it each time, and compares with an undisturbed run."""
    began = time.monotonic()
    run(*arguments, "-o", "undisturbed.h5")
    seconds = time.monotonic() - began
    chance = random.Random(seed)
    if os.path.exists("killed.h5"):
        os.remove("killed.h5")
    line = [COMMAND, *map(str, arguments), "--resume", "-o", "killed.h5"]
    killed = 0
    for moment in range(moments):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(2))
        time.sleep(chance.uniform(0, 1.0 * seconds / (1 if moments < 10 else 4)))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), f"resume {moment}: exit {process.returncode}\n{errors}"
        if process.returncode == 0 and moment + 1 < moments:
            assert same_bytes("killed.h5", "undisturbed.h5"), f"differs after {killed} kills"
            os.remove("killed.h5")
        log(f"moment {moment + 1} of {moments}: {killed} kills so far")
    run(*arguments, "--resume", "-o", "killed.h5")
    assert same_bytes("killed.h5", "undisturbed.h5"), f"the bits differ after {killed} kills"
    return killed
