"""fq.ranks(): a user's loop on several processes has the bits of one, and an error is reported once."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

MPIEXEC = shutil.which("mpiexec")
LAUNCH = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
          "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

BEGIN = """
import hashlib, json, sys
import numpy as np
import fakequant as fq
ranks = fq.ranks()
numbers = np.random.default_rng(1)
centres, y = numbers.standard_normal((5, 12)), numbers.integers(0, 5, 613)
x = (centres[y] + 0.6 * numbers.standard_normal((613, 12))).astype(np.float32)
model = fq.model("mlp", (12,), 5, options={"hidden": [16], "batch_norm": True}, seed=1)
"""

TRAIN = BEGIN + """
model.fit((x, y), epochs=2, batch_size=60, micro_batch=20, learning_rate=3e-3, validation=(x[:100], y[:100]), ranks=ranks)
history = model.qat((x, y), "int8", epochs=1, batch_size=60, micro_batch=20, ranks=ranks, out=sys.argv[1], samples=256)
said = model.predict((x, y), batch_size=50, ranks=ranks)
told = {"history": [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in history],
        "evaluation": model.evaluate((x, y), batch_size=50, ranks=ranks), "said": [*said.shape, hashlib.sha256(said.tobytes()).hexdigest()],
        "sensitivity": dict(model.sensitivity((x, y), samples=64, ranks=ranks))["layers"]}
with open(f"{sys.argv[1]}.{ranks.rank}", "w") as file:
    json.dump([ranks.rank, ranks.count, bool(ranks.host), told], file)
"""


def launch(count, script, folder, *arguments):
    path = folder / "script.py"
    path.write_text(script)
    line = [sys.executable, str(path), *arguments]
    return subprocess.run([MPIEXEC, "-n", str(count), *line] if count > 1 else line, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **LAUNCH})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if MPIEXEC is None:
        pytest.skip("SKIPPED: no mpiexec")
    where = tmp_path_factory.mktemp("ranks")
    done = launch(2, BEGIN, where)
    if "this build has no MPI" in done.stderr:
        pytest.skip("SKIPPED: a build without MPI")
    assert done.returncode == 0, done.stderr
    return where


def test_matches_one_process_bitwise(folder):
    found = []
    for count in (1, 2, 3):
        out = folder / f"{count}.h5"
        done = launch(count, TRAIN, folder, str(out))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("preset int8") == 1, done.stdout
        for rank in range(count):
            *own, report = json.loads((folder / f"{count}.h5.{rank}").read_text())
            assert own == [rank, count, True]
            found.append((hashlib.sha256(out.read_bytes()).hexdigest(), report))
    assert len(found) == 6 and all(other == found[0] for other in found)
    assert found[0][1]["evaluation"]["count"] == 613 and found[0][1]["said"][:2] == [613, 5]


def fails(folder, count, script, *expected):
    before = time.monotonic()
    done = launch(count, BEGIN + script, folder)
    assert done.returncode != 0 and time.monotonic() - before < 60
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert sum(line.startswith("fakequant:") for line in done.stderr.splitlines()) == 1, done.stderr
    for text in expected:
        assert text in done.stderr, done.stderr


def test_reports_an_error_once(folder):
    fit = "model.fit((x, y), epochs=1, ranks=ranks, "
    fails(folder, 3, fit + "batch_size=32, micro_batch=16)", "[fit] 3 processes for the 2 parts of batch_size 32: start at most 2")
    fails(folder, 2, fit + "batch_size=32)", "set micro_batch to the samples of a part of batch_size 32, for example 16")
    fails(folder, 2, "model.evaluate((x, y), batch_size=32 + ranks.rank, ranks=ranks)", "batch_size is 33 on rank 1, 32 on rank 0")
    fails(folder, 2, "if ranks.rank == 0:\n    model.evaluate((x, y), ranks=ranks)\nelse:\n    model.predict((x, y), ranks=ranks)",
          'call is "predict" on rank 1, "evaluate" on rank 0')


def test_one_failing_process_stops_all(folder):
    alone = "for epoch in range(100000):\n    model.evaluate((x, y), ranks=ranks)\n    if ranks.rank == 1: raise ValueError('it is enough')"
    fails(folder, 3, alone, "ValueError: it is enough (rank 1 of 3 on ")


def test_rejects_invalid_arguments(folder):
    path = folder / "script.py"
    path.write_text(BEGIN)
    line = [MPIEXEC, "-n", "1", sys.executable, str(path), "a", ":", "-n", "1", sys.executable, str(path), "b"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env={**os.environ, **LAUNCH})
    assert done.returncode != 0 and 'arguments/1 is "b" on rank 1, "a" on rank 0' in done.stderr, done.stderr


def test_one_process_does_not_communicate():
    import fakequant as fq
    ranks = fq.ranks()
    assert (ranks.rank, ranks.count, ranks.bytes) == (0, 1, 0) and ranks is fq.ranks() and ranks.host in repr(ranks)
    with pytest.raises(ValueError, match="batch_size 10 is not a multiple of micro_batch 4: use 8 or 12"):
        fq.model("mlp", (3,), 2).fit(np.zeros((8, 3), np.float32), batch_size=10, micro_batch=4)
    with pytest.raises(ValueError, match=r"ranks is not the result of fq.ranks\(\)"):
        fq.model("mlp", (3,), 2).evaluate((np.zeros((8, 3), np.float32), np.arange(8) % 2), ranks=2)
