"""Model.qat beside `fakequant qat`: the same choices, and the same bits."""
import json
import os
import subprocess

import fakequant as fq
import numpy as np
import pytest

COMMAND = os.environ.get("FAKEQUANT", "")
EXAMPLE = os.environ.get("FAKEQUANT_QAT_EXAMPLE", "")  # examples/qat_network.cpp


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The nearest of five points in twelve numbers, as a file and as a trained float network."""
    h5py = pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("qat")
    numbers = np.random.default_rng(1)
    centres, labels = numbers.standard_normal((5, 12)), numbers.integers(0, 5, 1200)
    x = (centres[labels] + 0.6 * numbers.standard_normal((1200, 12))).astype(np.float32)
    path = str(folder / "table.h5")
    with h5py.File(path, "w") as file:
        file["train/x"], file["train/y"] = x, labels
    data = fq.dataset(path)
    model = fq.model("mlp", data.sample_shape, 5, options={"hidden": [32, 32], "batch_norm": True})
    model.fit(data, epochs=6, learning_rate=3e-3)
    model.save(str(folder / "float.h5"))
    return folder, path, data


def datasets(path):
    h5py = pytest.importorskip("h5py")
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def identity(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path) as file:
        return json.loads(bytes(file["attributes"][()]))["model"]


@pytest.mark.skipif(not COMMAND, reason="FAKEQUANT names no command")
@pytest.mark.parametrize("preset", ["int8", "w4a8", "w2a2", "nvfp4"])
def test_command_gives_the_same_bits(table, preset, capsys):
    folder, path, data = table
    theirs, own = str(folder / f"{preset}_command.h5"), str(folder / f"{preset}_own.h5")
    target = ["--target", "none"] if preset == "nvfp4" else []
    reported = subprocess.run([COMMAND, "qat", str(folder / "float.h5"), "--data", path, "--preset", preset, "--epochs", "2", "-o", theirs,
                           *target], check=True, capture_output=True, text=True).stdout
    model = fq.load(str(folder / "float.h5"))
    model.qat(data, preset, epochs=2, out=own, **({"target": "none"} if target else {}))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line in reported.splitlines() for line in lines), (lines, reported)
    wanted, found = datasets(theirs), datasets(own)
    compared = [name for name in wanted if name.split("/")[0] in ("parameters", "buffers", "quantizers")]
    assert len(compared) > 6
    for name in compared:
        assert np.array_equal(wanted[name], found[name]), name


@pytest.mark.skipif(not COMMAND or not os.path.exists(EXAMPLE), reason="FAKEQUANT or FAKEQUANT_QAT_EXAMPLE names no program")
@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_command_cpp_and_python_give_the_same_bits(tmp_path, preset):
    """One workflow, three callers: all tensors of the three checkpoints are equal, byte for byte."""
    digits = os.path.join(os.environ.get("FAKEQUANT_SOURCE_DIR", "."), "data", "digits.h5")
    network, *files = (str(tmp_path / name) for name in ("float.h5", "command.h5", "cpp.h5", "python.h5"))
    subprocess.run([COMMAND, "train", "--model", "cnn", "--data", digits, "--epochs", "3", "-o", network], check=True,
                   capture_output=True)
    subprocess.run([COMMAND, "qat", network, "--data", digits, "--preset", preset, "--epochs", "2", "-o", files[0]], check=True,
                   capture_output=True)
    subprocess.run([EXAMPLE, digits, network, files[1], preset, "2"], check=True, capture_output=True)
    model = fq.load(network)
    model.qat(fq.dataset(digits), preset, epochs=2, quiet=True)
    model.save(files[2])
    wanted, *found = ({name: value for name, value in datasets(file).items() if name.split("/")[0] in ("parameters", "buffers", "quantizers")}
                      for file in files)
    assert identity(files[0]) == identity(files[1]) == identity(files[2])
    changed = datasets(network)
    assert len(wanted) > 12 and any(not np.array_equal(value, changed[name]) for name, value in wanted.items() if name in changed)
    for other in found:
        assert other.keys() == wanted.keys()
        assert all(other[name].dtype == value.dtype and other[name].tobytes() == value.tobytes() for name, value in wanted.items())


@pytest.mark.skipif(not COMMAND, reason="FAKEQUANT names no command")
def test_config_algorithms_and_rules_match_the_command(table):
    """The algorithm on weights runs, and rules of an object keep their order in the checkpoint."""
    folder, path, data = table
    config = {"preset": "w4a8", "target": "none", "weight_algorithm": "gptq",
              "rules": {"fc*.weight_quantizer": {"num_bits": 8}, "fc1.*": {"num_bits": 4}}}
    file, theirs, own = (str(folder / name) for name in ("gptq.json", "gptq_command.h5", "gptq_own.h5"))
    with open(file, "w") as out:
        json.dump(config, out)
    subprocess.run([COMMAND, "qat", str(folder / "float.h5"), "--data", path, "--config", file, "--epochs", "1", "-o", theirs],
                   check=True, capture_output=True)
    model, plain = fq.load(str(folder / "float.h5")), fq.load(str(folder / "float.h5"))
    model.qat(data, config, epochs=1, out=own, quiet=True)
    plain.qat(data, {key: value for key, value in config.items() if key != "weight_algorithm"}, epochs=1, quiet=True)
    wanted, found = datasets(theirs), datasets(own)
    compared = [name for name in wanted if name.split("/")[0] in ("parameters", "buffers", "quantizers")]
    assert len(compared) > 6 and all(np.array_equal(wanted[name], found[name]) for name in compared)
    assert any(not np.array_equal(wanted[f"parameters/{name}"], value) for name, value in plain.state_dict().items()
               if f"parameters/{name}" in wanted)
    assert [rule["pattern"] for rule in fq.load(own).config["rules"]] == list(config["rules"])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small float network of the characters of a text, and that text."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("to be or not to be, that is the question. " * 60)
    path, network = str(folder / "text.h5"), str(folder / "float.h5")
    subprocess.run([COMMAND, "dataset", "from-text", str(folder / "text.txt"), "--windows", "8", "-o", path], check=True,
                   capture_output=True)
    subprocess.run([COMMAND, "train", "--model", "gpt", "--model-options", '{"layers": 1, "width": 16, "heads": 2, "context": 8}', "--data",
                    path, "--epochs", "2", "--lr", "0.01", "-o", network], check=True, capture_output=True)
    return folder, path, network


@pytest.mark.skipif(not COMMAND, reason="FAKEQUANT names no command")
@pytest.mark.parametrize("preset", ["int8", "w4a8", "w2a8"])
def test_text_matches_the_command(text, preset, capsys):
    folder, path, network = text
    theirs, own = str(folder / f"{preset}_command.h5"), str(folder / f"{preset}_own.h5")
    reported = subprocess.run([COMMAND, "qat", network, "--data", path, "--preset", preset, "--epochs", "1", "-o", theirs], check=True,
                          capture_output=True, text=True).stdout
    data = fq.dataset(path)
    x, y = data.read([0, 3])
    assert x.shape == y.shape == (2, 8) and np.array_equal(x[:, 1:], y[:, :-1]) and data.classes == 0
    model = fq.load(network)
    model.qat(data, preset, epochs=1, out=own)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line in reported.splitlines() for line in lines), (lines, reported)
    assert ("(kl, temperature 1), a share of 0.5" in lines[1]) == (preset != "int8"), lines
    wanted, found = datasets(theirs), datasets(own)
    compared = [name for name in wanted if name.split("/")[0] in ("parameters", "buffers", "quantizers")]
    assert len(compared) > 20 and all(np.array_equal(wanted[name], found[name]) for name in compared)
    evaluated = json.loads(subprocess.run([COMMAND, "evaluate", theirs, "--data", path, "--metrics", "bpc", "--json"], check=True,
                                          capture_output=True, text=True).stdout.splitlines()[-1])
    assert model.evaluate(fq.dataset(path, "test"))["bpc"] == pytest.approx(evaluated["metrics"]["bpc"], abs=1e-6), evaluated


@pytest.mark.skipif(not COMMAND, reason="FAKEQUANT names no command")
def test_adapters_match_the_command_bitwise(table, capsys):
    folder, path, data = table
    theirs, own = str(folder / "lora_command.h5"), str(folder / "lora_own.h5")
    reported = subprocess.run([COMMAND, "qat", str(folder / "float.h5"), "--data", path, "--preset", "w4a8", "--steps", "7", "--lora", "2",
                           "--set", "low_rank.alpha=3", "-o", theirs], check=True, capture_output=True, text=True).stdout
    model = fq.load(str(folder / "float.h5"))
    model.qat(data, "w4a8", steps=7, out=own, lora=2, lora_alpha=3.0)
    assert capsys.readouterr().out.splitlines()[1] in reported.splitlines() and "adapters of rank 2 alone, times 1.5" in reported, reported
    wanted, found = datasets(theirs), datasets(own)
    compared = [name for name in wanted if name.split("/")[0] in ("parameters", "adapters", "quantizers")]
    assert len(compared) > 12 and all(np.array_equal(wanted[name], found[name]) for name in compared)
    with pytest.raises(fq.ArgumentError, match="use at most 5"):
        fq.load(str(folder / "float.h5")).qat(data, "w4a8", epochs=1, lora=6, quiet=True)


def test_options_override_defaults(table, capsys):
    folder, _, data = table
    model = fq.load(str(folder / "float.h5"))
    model.qat(data, "w2a2", epochs=1, edge_bits=0, weight_method="max", learning_rate=1e-3, amax="frozen", learn_weight_ranges=False,
              amax_rate=1.0, follow_itself=False)
    assert "in the first" not in capsys.readouterr().out
    with pytest.raises(fq.ArgumentError, match="already quantized"):
        model.qat(data, "int8")
    with pytest.raises(fq.ArgumentError, match="edge_bits is 1"):
        fq.load(str(folder / "float.h5")).qat(data, "w2a2", edge_bits=1)
    with pytest.raises(fq.ArgumentError, match="require the name of a preset"):
        fq.load(str(folder / "float.h5")).qat(data, {"preset": "int8"}, edge_bits=8)
    model = fq.load(str(folder / "float.h5"))
    model.qat(data, {"preset": "w4a8"}, epochs=1, quiet=True)
    assert capsys.readouterr().out == "" and "int8" not in str(model).splitlines()[1].split("weight_quantizer")[-1]


def test_presets_match_the_command(table):
    config = fq.preset_config("w2a2")
    assert config["preset"] == "w2a2" and config["algorithm"] == "one_pass_mse"
    assert {rule["pattern"] for rule in config["rules"]} >= {"@first.*weight_quantizer", "@last.*input_quantizer"}
    chosen, line = fq.training_defaults(config)
    assert chosen == {"learning_rate": 0.004, "amax": "learned", "amax_gradient": "lsq", "learn_weight_ranges": True,
                      "amax_rate": 3.0} and line.startswith("ranges learned (lsq)")
    assert fq.preset_config("int8") == {"preset": "int8", "rules": [{"pattern": "@residual.*", "enable": False}]}
    assert fq.preset_config("int8_weight_only") == {"preset": "int8_weight_only"}


@pytest.mark.parametrize("stop", ["on_step", "on_epoch"])
def test_interrupt_keeps_the_model_complete(table, stop):
    """Quantizers are enabled and have ranges, and the evaluated model is the one that a later run begins with."""
    folder, _, data = table
    model = fq.load(str(folder / "float.h5"))
    model.quantize("int8")
    model.calibrate(data)

    def interrupt(report):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, epochs=3, **{stop: interrupt})
    assert model.evaluate(data)["accuracy"] > 0.8 and all(row["amax"] for row in model.quantizers() if row["enabled"])
    model.fit(data, epochs=1, learning_rate=1e-4)
