"""A program that times rows when asked, one request and one line of JSON at a time (bench/server.cpp, bench/peers/worker.py)."""

import json
import subprocess


class WorkerError(Exception):
    """The program reported an error, or it ended. The message says which."""


class Worker:
    """A worker process, started by the constructor. Its standard error goes to the file `log`."""

    def __init__(self, command, environment, log):
        self.log = log
        with open(log, "w") as errors:
            try:
                self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                stderr=errors, text=True)
            except OSError as error:
                raise WorkerError(f"{command[0]} cannot be started: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.terminate()
        self.process.wait()

    def ask(self, *words):
        line = ""
        try:
            print(*words, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line:
            raise WorkerError(f"{self.process.args[0]} ended with status {self.process.wait()}; its last words: "
                              f"{self.last_words()} (all of them in {self.log})")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def last_words(self):
        with open(self.log, errors="replace") as file:
            lines = file.read().strip().splitlines()
        return lines[-1] if lines else "none"
