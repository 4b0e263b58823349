"""The example of docs/python.md runs as it stands."""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_example(tmp_path, capsys):
    text = (ROOT / "docs" / "python.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "data").symlink_to(ROOT / "data")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        exec(compile(example, "docs/python.md", "exec"), {})
    finally:
        os.chdir(before)
    assert float(capsys.readouterr().out.split()[0]) > 0.9
    assert (tmp_path / "int8.h5").exists() and (tmp_path / "int8.onnx").exists()
