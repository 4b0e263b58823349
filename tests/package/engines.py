"""engines.py FOLDER: every file of fakequant.engines is installed in FOLDER, and the module that installs engines runs there."""
import os
import subprocess
import sys

tree, source = sys.argv[1], os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
engines = os.path.join("fakequant", "engines")
for folder, _, names in os.walk(os.path.join(source, engines)):
    for name in [] if folder.endswith("__pycache__") else names:
        path = os.path.relpath(os.path.join(folder, name), source)
        assert os.path.exists(os.path.join(tree, path)), f"{path} is not installed"
done = subprocess.run([sys.executable, "-m", "fakequant.engines.install", "--help"], cwd="/", capture_output=True, text=True,
                      env={**os.environ, "PYTHONPATH": tree})
assert done.returncode == 0 and "python3 -m fakequant.engines.install" in done.stdout and "llama.cpp" in done.stdout, done.stderr
