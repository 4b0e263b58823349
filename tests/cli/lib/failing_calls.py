"""Commands whose n-th system call fails, or that are killed at it: existing files are unchanged or replaced as a
whole."""

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time

from command import COMMAND, environment, patient

LIBRARY = os.environ.get("FAIL_CALLS", "")
ERRORS = {"write": 28, "pwrite": 28, "fsync": 5, "rename": 5, "ftruncate": 5, "open": 28}


def preloaded(arguments, folder, **plan):
    """Runs the command there with that call failing; the finished process and how many such calls there were."""
    more = {key: str(value) for key, value in plan.items()}
    with tempfile.NamedTemporaryFile("r") as count:
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=patient(300), cwd=folder,
                              env=dict(environment(1), LD_PRELOAD=LIBRARY, FAIL_COUNT=count.name, **more))
        text = count.read()
    return done, int(text) if text else -1


def contents(folder):
    """Returns the contents of all files by path below `folder`."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def is_temporary(name):
    return ".fakequant-" in os.path.basename(name)


def write_files(files, folder):
    """Replaces the contents of the folder by these files."""
    shutil.rmtree(folder)
    os.makedirs(folder)
    for name, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


class Trial:
    """A command in a folder that `prepare` made. `growing`: files that are appended to and may have any prefix of their result.
    `changing`: files of which only the existence is compared (times, names of folders). `says`: the printed output is compared
    too."""

    def __init__(self, name, source, arguments, growing=(), changing=(), again=("--force",), says=False):
        self.name, self.source, self.arguments, self.says = name, source, arguments, says
        self.growing, self.changing, self.again = growing, changing, list(again)
        self.before, self.left = contents(source), set()
        whole, _ = self.go(FAIL_CALL="none")
        self.after = whole

    def go(self, **plan):
        with self.copied() as folder:
            done, calls = preloaded(self.arguments, folder, **plan)
            found = contents(folder)
            if plan["FAIL_CALL"] == "none":
                assert done.returncode == 0, (self.name, done.stderr)
                self.output = done.stdout
                return found, calls
            if "FAIL_WITH" in plan:
                if done.returncode == 0 and 0 <= calls < plan["FAIL_AT"]:
                    plan = dict(plan, FAIL_WITH="nothing")  # pages of a run are written as often as time allows
                self.check(done, found, plan)
                if done.returncode < 0:
                    self.begin_again(folder, plan)
            return done, calls

    def check(self, done, found, plan):
        killed = plan["FAIL_WITH"] in ("kill", "half")
        where = (self.name, plan, done.returncode, done.stderr)
        assert done.returncode == -9 if killed else done.returncode in (0, 1, 2), where
        assert killed or done.returncode == 0 or (done.stderr.strip() and "terminate" not in done.stderr), where
        self.check_files(found, plan, killed)

    def check_files(self, found, plan, killed):
        for name, now in found.items():
            if is_temporary(name):
                assert killed, (self.name, plan, name, "is left")
            elif name in self.growing:
                pass
            elif name in self.changing:
                assert now, (self.name, plan, name, "is empty")
            else:
                assert now in (self.before.get(name), self.after.get(name)), (self.name, plan, name, "is torn")
        for name in self.before:
            assert name in found, (self.name, plan, name, "is gone")

    def fault_without_memory(self, status, output, errors, found):
        """Returns the fault in status, output, errors or files, or None."""
        try:
            if status == 0:
                assert not errors and self.is_done(found), f"not done, status 0: {errors}"
                assert not self.says or output == self.output, f"status 0, printed: {output}"
            else:
                message = errors.count("\n") == 1 and ("memory" in errors or "bytes left" in errors)
                assert status == 1 and message, f"status {status}: {errors}"
            self.check_files(found, "without memory", status != 0)
            if self.is_new(found):
                with self.copied() as folder:
                    write_files(found, folder)
                    self.begin_again(folder, "without memory")
        except AssertionError as error:
            return str(error)
        return None

    def is_done(self, found):
        return all(found.get(name) == now for name, now in self.after.items() if name not in (*self.growing, *self.changing))

    def is_new(self, found):
        """Whether no such files were left before."""
        state = hash(frozenset((name, None if name in (*self.growing, *self.changing) else now) for name, now in found.items()
                               if not is_temporary(name)))
        return state not in self.left and (self.left.add(state) or True)

    def kill(self, moment):
        """Sends SIGKILL after that number of seconds; returns whether the command was still running. Then starts it again."""
        with self.copied() as folder:
            process = subprocess.Popen([COMMAND, *map(str, self.arguments)], cwd=folder, env=environment(1),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                assert process.wait(moment) == 0, self.name
                return False
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            plan = {"killed after": f"{moment:.4f} s"}
            self.check_files(contents(folder), plan, True)
            self.begin_again(folder, plan)
            return True

    def begin_again(self, folder, plan):
        """Starts the command again: files left by the killed one must not prevent it."""
        again, _ = preloaded(self.arguments + self.again, folder)
        assert again.returncode == 0, (self.name, plan, again.stderr)
        self.check_files(contents(folder), plan, False)

    @contextlib.contextmanager
    def copied(self):
        folder = tempfile.mkdtemp(dir=".")
        shutil.rmtree(folder)
        shutil.copytree(self.source, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def calls(self, call):
        _, count = self.go(FAIL_CALL=call)
        return count


def spread(most, count):
    """Up to `most` of the places 1 .. count, evenly among them."""
    tries = min(most, count)
    return sorted({1 + i * (count - 1) // max(tries - 1, 1) for i in range(tries)})


def try_calls(trial, most, kills=True, log=lambda text: None):
    """Lets up to `most` calls of each kind fail, evenly among those there are, and kills at them. Returns how many."""
    tried = 0
    for call, error in ERRORS.items():
        count = trial.calls(call)
        places = spread(most, count)
        for at in places:
            for how in (error, "kill") if kills else (error,):
                trial.go(FAIL_CALL=call, FAIL_AT=at, FAIL_WITH=how)
                tried += 1
        log(f"{trial.name}: {call}: {len(places)} of {count} calls")
    return tried


def kill_spread(trial, count, seed=0, log=lambda text: None):
    """`count` moments spread over the time that the command takes, drawn at random in each part. Returns how many hit."""
    begin = time.monotonic()
    trial.go(FAIL_CALL="none")
    length, draw, hit = time.monotonic() - begin, random.Random(seed), 0
    for at in range(count):
        hit += trial.kill((at + draw.random()) / count * length)
    log(f"{trial.name}: {hit} of {count} kills while it ran, of {length:.2f} s")
    return hit
