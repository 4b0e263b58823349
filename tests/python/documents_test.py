"""The examples of docs/python.md run unchanged. Examples with torch: FAKEQUANT_TORCH_SITE names a folder with torch."""
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(example):
    exec(compile(example, "docs/python.md", "exec"), {})


def test_the_library(folder, capsys):
    run(EXAMPLES[0])
    assert float(capsys.readouterr().out.split()[0]) > 0.9
    assert (folder / "int8.h5").exists() and (folder / "int8.onnx").exists()


def test_data_sets(folder, capsys):
    run(EXAMPLES[1])
    assert capsys.readouterr().out.strip() == re.search(r"# (\{.*\})", EXAMPLES[1]).group(1)


def test_torch(folder, capsys):
    if os.environ.get("FAKEQUANT_TORCH_SITE"):
        sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
    for package in ("torch", "onnxruntime"):
        pytest.importorskip(package, reason=f"there is no {package}: FAKEQUANT_TORCH_SITE can name a folder that has it")
    run(EXAMPLES[2])
    assert capsys.readouterr().out.strip() == re.search(r"# (\{'outputs.*\})", EXAMPLES[2]).group(1)
    assert len(EXAMPLES) == 3
