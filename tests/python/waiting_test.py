"""How threads of OpenMP wait in a process of Python."""
import os
import subprocess
import sys


def test_waiting_threads_spin_briefly():
    script = ("import os, fakequant\n"
              "print(os.environ.get('GOMP_SPINCOUNT'))\n"
              "import fakequant.waiting as w\n"
              "with w.short_spins(): print(os.environ.get('GOMP_SPINCOUNT'))")
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    for given, printed in (({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")):
        done = subprocess.run([sys.executable, "-c", script], env=clean | given | {"OMP_DISPLAY_ENV": "VERBOSE"}, capture_output=True, text=True,
                              check=True)
        assert done.stdout.split() == [given.get('GOMP_SPINCOUNT', 'None'), printed], done.stdout
        report = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
        if report and "OMP_WAIT_POLICY" not in given:
            assert printed in report[0], report
