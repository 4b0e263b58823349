"""bench_test.py SOURCE_DIR: scripts/bench with programs that replace both sides: order of the batches, figures,
report, comparison, messages. Nothing is built, installed or really timed. Exit status 77: skipped."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

if sys.version_info < (3, 9):
    print("skipped: scripts/bench needs Python 3.9 or newer")
    sys.exit(77)

SOURCE = os.path.abspath(sys.argv.pop())
WORKER = os.path.join(SOURCE, "tests", "scripts", "bench_worker.py")
RESULT = ["name", "ratio", "ratio_min", "ratio_max", "ours", "theirs", "unit", "rounds", "threads"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.room = tempfile.TemporaryDirectory()
        self.addCleanup(self.room.cleanup)
        self.log, self.report = (os.path.join(self.room.name, name) for name in ("log", "report.json"))

    def bench(self, *words):
        sides = [f"--{side}={sys.executable} {WORKER} {self.log} {side}" for side in ("own", "peer")]
        return subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "bench"), *sides, "--report", self.report,
                               *words], text=True, capture_output=True)

    def results(self):
        with open(self.report) as file:
            return json.load(file)

    def test_alternates_rounds_as_a_b_b_a(self):
        self.assertEqual(self.bench("fake.equal.small/memcpy").returncode, 0)
        with open(self.log) as file:
            batches = "".join("A" if line == "ours\n" else "B" for line in file)
        self.assertEqual(batches[-4 * 15:], "ABBA" * 15)
        self.assertLess(len(batches), 4 * 15 + 10)

    def test_report(self):
        done = self.bench("--quick", "--peers", "--threads", "2", "fake.equal*")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.results()
        self.assertEqual(list(report), ["machine", "versions", "method", "results", "failures"])
        self.assertEqual(report["versions"], {"own": "1", "peer": "1", "threads": "2"})
        self.assertTrue(report["method"]["quick"])
        self.assertEqual([r["name"] for r in report["results"]], ["fake.equal.small/memcpy", "fake.equal.small/torch"])
        for result in report["results"]:
            self.assertEqual(list(result)[:len(RESULT)], RESULT)
            self.assertEqual((result["unit"], result["rounds"], result["threads"]), ("ms", 5, 2))
            self.assertIs(result["compared"], True)
            for key, value in {"ratio": 0.5, "ratio_min": 0.5, "ratio_max": 0.5, "ours": 20.0, "theirs": 40.0}.items():
                self.assertAlmostEqual(result[key], value)
        self.assertEqual([r.get("variants") for r in report["results"]], [None, {"eager": 50.0, "compiled": 40.0}])
        self.assertRegex(done.stdout, r"\| `fake.equal.small/torch` \| 0.500 \|.*\| compiled \|\n")

    def test_compares_values(self):
        self.assertEqual(self.bench("--quick", "fake.value").returncode, 0)
        self.assertEqual(self.results()["results"][0]["ratio"], 0.75)

    def test_reports_failures_and_continues(self):
        done = self.bench("--quick", "--peers")
        self.assertEqual(done.returncode, 1)
        report = self.results()
        self.assertEqual(len(report["results"]), 3)
        failures = {failure["name"]: failure["reason"] for failure in report["failures"]}
        self.assertEqual(failures["fake.different.small/torch"], "not equal: y[3]: ours 1, expected 2")
        self.assertIn("status 3; its last words: out of memory", failures["fake.crash/torch"])
        self.assertIn("FAILED", done.stdout)

    def test_runs_peers_on_request(self):
        self.assertEqual(self.bench("--quick", "fake.equal*").returncode, 0)
        self.assertEqual(len(self.results()["results"]), 1)
        done = self.bench("fake.equal.small/torch")
        self.assertEqual(done.returncode, 2)
        self.assertIn("use --peers", done.stderr)

    def test_fails_without_rows(self):
        empty = os.path.join(self.room.name, "empty.py")
        with open(empty, "w") as file:
            file.write("for _ in open(0): print('{\"versions\": {}, \"rows\": []}', flush=True)")
        done = self.bench("--own", f"{sys.executable} {empty}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no row matches", done.stderr)

    def test_unknown_row(self):
        done = self.bench("fake.eqal.small/memcpy")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nearest: fake.equal.small/memcpy", done.stderr)

    def test_list(self):
        self.assertIn("fake.value/memcpy\n", self.bench("--list").stdout)

    def test_plan_of_ranks(self):
        plan = [sys.executable, os.path.join(SOURCE, "bench", "ranks_plan.py"), "--parameters", "1000000", "--micro-batch-ms", "10",
                "--micro-batches", "8", "--latency-us", "0", "--fixed-ns", "0", "--tensors", "1", "--network", "1GB/s"]
        done = subprocess.run([*plan, "--ranks", "1,4"], text=True, capture_output=True)
        lines = [line.split() for line in done.stdout.splitlines()[1:]]
        self.assertEqual(lines[0], ["1", "80.00", "1.00", "80.00", "1.00"])
        # Two micro-batches; 8 MB: a ring moves 1.5 times the bytes, a tree four times.
        self.assertEqual([lines[1][1], lines[1][3]], ["32.00", "52.00"])
        done = subprocess.run([*plan, "--ranks", "9"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("9 ranks for 8 micro-batches: use 1 to 8", done.stderr)

    def test_reports_a_missing_program(self):
        done = self.bench("--own", "/no/such/program")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/no/such/program", done.stderr)

    def test_reports_missing_peer_libraries(self):
        worker = os.path.join(SOURCE, "bench", "peers", "worker.py")
        done = subprocess.run([sys.executable, "-B", worker, "--exchange", self.room.name], text=True, capture_output=True,
                              input="hello\nprepare nothing.at.all/torch\nnonsense\n")
        hello, *errors = map(json.loads, done.stdout.splitlines())
        self.assertIn("versions", hello)
        self.assertEqual(len(errors), 2)
        self.assertTrue(all("error" in error for error in errors))


unittest.main(verbosity=2)
