"""The installed package: one version everywhere, another library is rejected at import and at configure time, scripts/wheel."""
import os
import pathlib
import re
import subprocess
import sys

import fakequant as fq
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def test_has_one_version():
    for file, pattern in [("pyproject.toml", r'^version = "(.*)"'), ("CMakeLists.txt", r"^project\(fakequant VERSION ([0-9.]+)")]:
        assert re.search(pattern, (ROOT / file).read_text(), re.M).group(1) == fq.__version__, file


@pytest.mark.parametrize("name", ["Model", "Dataset", "TensorQuantizer"])
def test_stubs_include_python_additions(name):
    text = (pathlib.Path(fq.__file__).parent / "_fakequant" / "__init__.pyi").read_text()
    body = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", text, re.M | re.S).group()
    members = {member for member, value in vars(getattr(fq, name)).items() if callable(value) or isinstance(value, property)}
    hidden = {member for member in members if member.startswith("__") and member not in ("__getitem__", "__iter__", "__call__", "__len__")}
    assert members - hidden <= set(re.findall(r"^    def (\w+)\(", body, re.M))


def test_rejects_another_library_at_import(tmp_path):
    """A package of another version, and a library that was built with another stamp."""
    source, stamp = pathlib.Path(fq.__file__).parent, b"\0" + fq.__version__.encode() + b"\0"
    library = pathlib.Path(fq._fakequant.__file__)
    assert library.read_bytes().count(stamp) == 1
    for i, (package_version, library_version) in enumerate([(fq.__version__, fq.__version__), ("9.8.7", fq.__version__),
                                                            (fq.__version__, "9.8.7")]):
        package = tmp_path / str(i) / "fakequant"
        package.mkdir(parents=True)
        for path in source.iterdir():
            if path.name not in ("__init__.py", library.name) and not path.name.startswith("__pycache__"):
                (package / path.name).symlink_to(path.absolute())
        (package / library.name).write_bytes(library.read_bytes().replace(stamp, b"\0" + library_version.encode() + b"\0"))
        text = (source / "__init__.py").read_text()
        (package / "__init__.py").write_text(text.replace(f'"{fq.__version__}"', f'"{package_version}"'))
        done = subprocess.run([sys.executable, "-c", "import fakequant; print(fakequant.__file__)"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(package.parent)})
        if package_version == library_version:
            assert done.returncode == 0 and done.stdout.strip() == str(package / "__init__.py"), done.stderr
        else:
            words = f"ImportError: [fakequant] the package is {package_version}, and its library {library_version} ({package}"
            assert done.returncode == 1 and words in done.stderr


@pytest.mark.parametrize("code, message", [
    ("import fakequant.engines, sys; assert not {'numpy', 'torch'} & set(sys.modules)", ""),
    ("import fakequant; fakequant.Model", "ImportError: [fakequant] Model: "),
    ("from fakequant import modelopt", "ImportError: [fakequant] modelopt: "),
    ("import fakequant.methods", "ImportError: [fakequant] _fakequant: "),
])
def test_works_without_the_compiled_module(code, message):
    """The engines work in the source tree. A name of the compiled module is an error that says that it is missing."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert (done.returncode != 0) == bool(message), done.stderr
    assert message in done.stderr and ("has no compiled module _fakequant" in done.stderr) == bool(message)


@pytest.mark.parametrize("module", ["onnx", "openvino", "executorch", "gguf", "executorch_writer"])
def test_lists_engines_of_the_package(module):
    """Each program runs with the compiled module. It names a package that this Python lacks."""
    done = subprocess.run([sys.executable, "-m", f"fakequant.engines.{module}", "--packages"], capture_output=True, text=True,
                          cwd="/", env={**os.environ, "PYTHONPATH": os.path.abspath(os.path.dirname(os.path.dirname(fq.__file__)))})
    assert done.returncode == 0 or (done.returncode == 3 and " -m pip install " in done.stderr), done.stderr


def test_reports_a_compiled_module_that_does_not_load(tmp_path):
    """Only a missing module is tolerated."""
    (tmp_path / "fakequant").mkdir()
    for name in ("__init__.py", "waiting.py"):
        (tmp_path / "fakequant" / name).symlink_to(ROOT / "python/fakequant" / name)
    (tmp_path / "fakequant/_fakequant.py").write_text("import module_that_is_missing\n")
    done = subprocess.run([sys.executable, "-c", "import fakequant"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1 and "No module named 'module_that_is_missing'" in done.stderr


def test_rejects_another_library_at_configure_time(tmp_path):
    (tmp_path / "fakequantConfig.cmake").write_text("")
    (tmp_path / "fakequantConfigVersion.cmake").write_text('set(PACKAGE_VERSION "0.0.9")\n')
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT / "python", "-B", tmp_path / "build", f"-Dfakequant_DIR={tmp_path}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "0.0.9" in done.stderr and fq.__version__ in done.stderr


@pytest.mark.parametrize("arguments, status", [(["--help"], 0), (["--folder"], 2), (["a", "b"], 2), ([""], 2)])
def test_wheel_script_prints_its_usage(arguments, status):
    done = subprocess.run([ROOT / "scripts" / "wheel", *arguments], capture_output=True, text=True)
    assert (done.returncode, "scripts/wheel [FOLDER]" in done.stdout + done.stderr) == (status, True)


def test_wheel_script_requires_pip(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run([ROOT / "scripts" / "wheel", tmp_path / "out"], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": str(python)})
    assert done.returncode == 2 and "has no pip" in done.stderr and not (tmp_path / "out").exists()
