"""Runs the Python of README.md and docs/python.md unchanged. FAKEQUANT_TORCH_SITE names a folder with torch."""
import operator
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def examples(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.S)


EXAMPLES = examples("docs/python.md")


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


def require_torch():
    if os.environ.get("FAKEQUANT_TORCH_SITE"):
        sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
    for package in ("torch", "onnxruntime"):
        pytest.importorskip(package, reason=f"there is no {package}: FAKEQUANT_TORCH_SITE can name a folder that has it")


@pytest.mark.parametrize("example", [*EXAMPLES[2:], *examples("README.md")])
def test_torch(example, folder, capsys):
    require_torch()
    run(example)
    assert capsys.readouterr().out.strip() == re.search(r"# (\{'outputs.*\})", example).group(1)


def test_all_examples_run():
    assert len(EXAMPLES) == 3 and len(examples("README.md")) == 1


def test_migration_guide_names_exist():
    import fakequant as fq

    require_torch()
    import fakequant.torch as fqt

    roots = {"fq": fq, "fqt": fqt, "model": fq.Model}
    spans = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "coming_from.md").read_text())
    names = {(root, path) for span in spans for root, path in re.findall(r"(?<![\w.])(fqt?|model)\.(\w+(?:\.\w+)?)", span)}
    assert len(names) > 30, names
    for root, path in sorted(names):
        operator.attrgetter(path)(roots[root])
