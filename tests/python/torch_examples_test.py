"""examples/python: each example trains offline in seconds and lowers its loss."""
import os
import pathlib
import re
import subprocess
import sys

import fakequant as fq
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run(name, folder, *flags, needs=()):
    """Returns the lines that an example prints."""
    for library in needs:
        pytest.importorskip(library, reason=f"there is no {library} beside torch")
    paths = [str(pathlib.Path(fq.__file__).parents[1]), *filter(None, [os.environ.get("FAKEQUANT_TORCH_SITE")])]
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), *flags], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.py")])
def test_is_short(name):
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 80


def test_hf_trainer_trains_and_resumes(tmp_path):
    flags = "--preset", "q4_0", "--output", str(tmp_path)
    *_, last = run("hf_trainer", tmp_path, "--steps", "12", "--no-export", *flags, needs=["transformers", "accelerate", "tokenizers"])
    before, after = numbers(last)
    assert after < before - 0.2
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in (tmp_path / "model").iterdir()}
    *_, last = run("hf_trainer", tmp_path, "--steps", "24", "--resume", *flags)
    assert numbers(last)[1] < after and (tmp_path / "model.gguf").read_bytes()[:4] == b"GGUF"


def test_timm_finetune_writes_the_trained_codes(tmp_path):
    *_, first, second, last = run("timm_finetune", tmp_path, needs=["timm", "onnxruntime"])
    assert numbers(second)[0] < numbers(first)[0] and "'different': 0" in last
    assert (tmp_path / "timm.onnx").exists()


def test_detector_trains(tmp_path):
    floats, codes, verified = run("detector", tmp_path, "--steps", "20", needs=["onnxscript", "onnxruntime"])
    assert numbers(codes)[0] < numbers(floats)[0]
    assert "'different': 0" in verified and "'different_codes': 0" in verified


@pytest.mark.parametrize("flags", [(), ("--trl",)], ids=["trainer", "trl"])
def test_lora_sft_trains_adapters(flags, tmp_path):
    needs = ["transformers", "accelerate", "peft", *(["trl", "datasets"] if flags else [])]
    *_, last = run("lora_sft", tmp_path, "--steps", "16", "--output", str(tmp_path), *flags, needs=needs)
    first, after = numbers(last)
    assert after < first and "100 % of the multiply-adds on codes" in last
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists() and (tmp_path / "merged" / "model.safetensors").exists()


def test_lightning_classifies_digits(tmp_path):
    *_, accuracies, verified = run("lightning", tmp_path, "--output", str(tmp_path), needs=["lightning", "h5py", "onnxruntime"])
    floats, codes = numbers(accuracies)
    assert codes > floats - 3 and "'different': 0" in verified
    assert list(tmp_path.glob("*.ckpt")) and (tmp_path / "model.onnx").exists()
