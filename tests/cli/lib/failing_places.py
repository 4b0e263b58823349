"""Commands that run out of memory at every place that allocates, each in a copy of the process
(tests/crash/fork_allocations.cpp): they end with exit status 1 and one line, or complete. Files are unchanged
were, or replaced whole. A place is a stack of callers that was not there before."""

import collections
import os
import subprocess
import tempfile

from command import COMMAND, environment
from failing_calls import contents, spread
from kept import Kept

LIBRARY = os.environ.get("FORK_ALLOCATIONS", "")
WAYS = {"o": "one call", "a": "all from there on"}


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Places:
    """The places of one run of a trial's command."""

    def __init__(self, trial):
        self.trial = trial
        self.others = collections.Counter()  # of others' libraries, by name

    def walk(self, visit=lambda number: None):
        """Calls visit(number) at each that is not of others. Returns how many there are."""
        count = 0
        told, tell = os.pipe()
        heard, self.answer = os.pipe()
        with self.trial.copied() as self.folder, os.fdopen(told) as self.told, tempfile.TemporaryDirectory() as say:
            self.output, self.errors, self.callers = (os.path.join(say, name) for name in ("output", "errors", "callers"))
            variables = {"LD_PRELOAD": LIBRARY, "FORK_TALK": f"{heard},{tell}", "FORK_ERRORS": self.errors,
                         "FORK_CALLERS": self.callers}
            with open(self.output, "wb") as output:
                process = subprocess.Popen([COMMAND, *map(str, self.trial.arguments)], cwd=self.folder, stdout=output,
                                           stderr=subprocess.DEVNULL, pass_fds=(heard, tell), env=dict(environment(1), **variables))
            os.close(heard)
            os.close(tell)
            for line in iter(self.told.readline, ""):
                if line != "new\n":
                    self.others[line.strip()] += 1
                    continue
                count += 1
                visit(count)
                os.write(self.answer, b"n")
            os.close(self.answer)
            assert process.wait() == 0, f"{self.trial.name}: exit status {process.returncode} with what asks loaded"
        return count

    def copy(self, way):
        """Exit status, output, errors and files of a copy that continues without memory."""
        kept, printed = Kept(self.folder), os.path.getsize(self.output)
        os.write(self.answer, way.encode())
        status = os.waitstatus_to_exitcode(int(self.told.readline().split()[1]))
        found = contents(self.folder)
        kept.put_back()
        output, errors = read(self.output), read(self.errors)
        os.truncate(self.output, printed)
        return status, output, errors, found


def try_places(trial, most=None, log=lambda text: None):
    """Lets memory run out at up to `most` places, evenly among those there are, or at all. Returns how often."""
    chosen = None if most is None else set(spread(most, Places(trial).walk()))
    places, ends, wrong = Places(trial), collections.Counter(), []

    def visit(number):
        if chosen is not None and number not in chosen:
            return
        for way, words in WAYS.items():
            status, output, errors, found = places.copy(way)
            fault = trial.fault_without_memory(status, output, errors, found)
            ends["wrong" if fault else "refused" if status else "went on"] += 1
            if fault:
                wrong.append(fault)
                log(f"{trial.name}: place {number}, {words}: {fault}\n{read(places.callers)}")

    count = places.walk(visit)
    done = ", ".join(f"{ends[end]} {end}" for end in ("refused", "went on", "wrong"))
    others = "".join(f", {number} of {name} left out" for name, number in sorted(places.others.items()))
    log(f"{trial.name}: {sum(ends.values())} copies at {count if chosen is None else len(chosen)} of {count} places{others}: {done}")
    assert not wrong, (trial.name, wrong[0])
    return sum(ends.values())
