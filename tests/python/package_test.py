"""What is installed: one version everywhere, another library refused at import and at configure time, scripts/wheel."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import fakequant as fq

ROOT = pathlib.Path(__file__).parents[2]


def test_one_version():
    for file, pattern in [("pyproject.toml", r'^version = "(.*)"'), ("CMakeLists.txt", r"^project\(fakequant VERSION ([0-9.]+)")]:
        assert re.search(pattern, (ROOT / file).read_text(), re.M).group(1) == fq.__version__, file


def test_another_library_is_refused_at_import(tmp_path):
    package = tmp_path / "fakequant"
    package.mkdir()
    for path in pathlib.Path(fq.__file__).parent.iterdir():
        if path.name != "__init__.py" and not path.name.startswith("__pycache__"):
            (package / path.name).symlink_to(path.absolute())
    text = pathlib.Path(fq.__file__).read_text()
    for version in (fq.__version__, "9.8.7"):
        (package / "__init__.py").write_text(text.replace(f'"{fq.__version__}"', f'"{version}"'))
        done = subprocess.run([sys.executable, "-c", "import fakequant; print(fakequant.__file__)"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(tmp_path)})
        if version == fq.__version__:
            assert done.returncode == 0 and done.stdout.strip() == str(package / "__init__.py"), done.stderr
        else:
            assert done.returncode == 1 and f"the package is 9.8.7, and its library {fq.__version__} (" in done.stderr


def test_another_library_is_refused_at_configure_time(tmp_path):
    (tmp_path / "fakequantConfig.cmake").write_text("")
    (tmp_path / "fakequantConfigVersion.cmake").write_text('set(PACKAGE_VERSION "0.0.9")\n')
    done = subprocess.run(["cmake", "-S", ROOT / "python", "-B", tmp_path / "build", f"-Dfakequant_DIR={tmp_path}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "0.0.9" in done.stderr and fq.__version__ in done.stderr


@pytest.mark.parametrize("arguments, status", [(["--help"], 0), (["--folder"], 2), (["a", "b"], 2), ([""], 2)])
def test_the_wheel_script_says_how_it_is_called(arguments, status):
    done = subprocess.run([ROOT / "scripts" / "wheel", *arguments], capture_output=True, text=True)
    assert (done.returncode, "scripts/wheel [FOLDER]" in done.stdout + done.stderr) == (status, True)


def test_the_wheel_script_wants_pip(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run([ROOT / "scripts" / "wheel", tmp_path / "out"], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": str(python)})
    assert done.returncode == 2 and "has no pip" in done.stderr and not (tmp_path / "out").exists()
