"""Power failures: a command is recorded, every possible state of the disk is checked, and runs resume from some
from."""

import hashlib
import os
import shutil
import subprocess
import tempfile

from command import COMMAND, environment, patient
from disk import Disk, read_calls
from failing_calls import contents, is_temporary

LIBRARY = os.environ.get("RECORD_CALLS", "")


def ends_well(arguments, folder, **more):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=patient(300), cwd=folder,
                          env=dict(environment(1), **more))
    assert done.returncode == 0, (arguments, done.stderr)


def write_state(state, folder):
    os.makedirs(folder)
    for path, content in state.items():
        os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(folder, path), "wb") as file:
            file.write(content)


class PowerTrial:
    """A command in a folder made from `source`. `growing`: files that are appended to. `again`: arguments that resume, or start
    again, in any state; `same` the files that must then be as if the power had not failed."""

    def __init__(self, name, source, arguments, again, same, growing=()):
        self.name, self.source, self.arguments, self.again = name, source, arguments, again
        self.same, self.growing = same, growing

    def run(self, most, log=lambda text: None):
        """Resumes from up to `most` of the states; returns the number of states and of resumed states."""
        found = self.states()
        states = [state for _, state in sorted(found.items())]  # by digest: spread over the run
        tried = states[::max(1, len(states) // most)][:most]
        for state in tried:
            self.advance(state)
        log(f"{self.name}: {len(states)} states of the disk, gone on from {len(tried)}")
        return len(states), len(tried)

    def states(self):
        """The different ones, each looked at."""
        with tempfile.TemporaryDirectory(dir=".") as place:
            folder, record = os.path.join(place, "run"), os.path.abspath(os.path.join(place, "record"))
            shutil.copytree(self.source, folder) if self.source else os.makedirs(folder)
            disk = Disk(contents(folder), folder)
            ends_well(self.arguments, folder, LD_PRELOAD=LIBRARY, RECORD_TO=record)
            self.after = contents(folder)
            moments = list(read_calls(record))
        names, found, before = {name for name, _, _ in moments}, {}, set(disk.names)
        assert {"write", "sync", "rename", "folder"} <= names, (self.name, names)
        seen = []
        for at, moment in enumerate(moments):
            disk.take(*moment)
            for how, state in disk.states():
                digest = hashlib.sha1(repr(sorted((path, hashlib.sha1(data).hexdigest()) for path, data in state.items()))
                                      .encode()).hexdigest()
                if digest not in found:
                    found[digest] = state
                    seen.append(((at, *moment[:2], *how), state))
        for where, state in seen:
            self.look(where, state, disk.whole, before)
        for how, state in disk.states():  # it ended: nothing of it is in doubt
            for path, content in self.after.items():
                assert state.get(path) == content, (self.name, "at the end", how, path, "is not safe")
        return found

    def look(self, where, state, whole, before):
        for path, content in state.items():
            if not is_temporary(path) and not path.startswith(self.growing):
                assert content in whole.get(path, ()), (self.name, where, path, "is torn")
        for path in before:
            assert path in state, (self.name, where, path, "is gone")

    def advance(self, state):
        folder = tempfile.mkdtemp(dir=".")
        try:
            shutil.rmtree(folder)
            write_state(state, folder)
            ends_well(self.again, folder)
            found = contents(folder)
            for path in self.same:
                assert found.get(path) == self.after[path], (self.name, path, "differs from a run that was left alone")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
