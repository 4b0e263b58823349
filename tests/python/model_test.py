"""Actions of the command on a model: verify and compress; and `with` blocks."""
import os
import sys

import fakequant as fq
import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    return random.standard_normal((256, 1, 8, 8)).astype(np.float32), random.integers(0, 4, 256)


def make_model(data, preset="int8"):
    model = fq.model("cnn", [1, 8, 8], 4)
    model.fold_batch_norm()
    model.quantize(preset)
    model.calibrate(data, samples=64)
    return model


def test_calibrate_runs_the_weight_algorithm(data):
    config = {"preset": "w4a8"}
    plain, changed = (make_model(data, config | extra).state_dict() for extra in ({}, {"weight_algorithm": "gptq"}))
    assert not np.array_equal(plain["conv1.weight"], changed["conv1.weight"])


@pytest.mark.parametrize("preset", ["int8", "int8_weight_only", "w4a4", "fp8", "int8_dynamic"])
def test_verifies(data, tmp_path, preset):
    pytest.importorskip("onnxruntime", reason="there is no onnxruntime: FAKEQUANT_TORCH_SITE can name a folder that has it")
    model, path = make_model(data, preset), tmp_path / "model.onnx"
    model.export(str(path))
    found = model.verify(path, data, samples=50)
    assert found["outputs"] == 200 and found["flips"] == 0 and found["max"] < 1e-3  # a sum of floats at a tie is another code
    if preset == "int8":
        assert found["different"] == 0 and model.verify(str(path), data[0], batch_size=100)["outputs"] == 1024
        other = fq.model("cnn", [1, 8, 8], 4, seed=1)
        assert other.verify(str(path), data)["different"] > 0
        for wrong, words in [(tmp_path / "none.onnx", "is not a file"), (tmp_path / "broken.onnx", "cannot be loaded by ONNX Runtime"),
                             (path, "has outputs .* of another model")]:
            (tmp_path / "broken.onnx").write_bytes(b"onnx")
            with pytest.raises(fq.FileError, match=words) as caught:
                fq.model("cnn", [1, 8, 8], 5).verify(wrong, data)
            assert caught.value.path == str(wrong)
        with pytest.raises(fq.FileError, match="cannot run these samples"):
            fq.model("cnn", [3, 8, 8], 4).verify(path, np.ones((2, 3, 8, 8), np.float32))


def test_compresses(data, tmp_path):
    model = make_model(data, "w4a8")
    y = model.predict(data)
    weights = model.compress()
    assert model.is_compressed and np.array_equal(model.predict(data), y)
    assert {row["name"] for row in weights} >= {"conv1.weight", "fc.weight"}
    assert all(row["elements"] // 2 <= row["code_bytes"] <= row["elements"] for row in weights)
    model.save(str(tmp_path / "small.h5"))
    again = fq.load(str(tmp_path / "small.h5"))
    assert again.is_compressed and np.array_equal(again.predict(data), y)
    with pytest.raises(fq.ArgumentError, match="decompress"):
        again.load_state_dict(again.state_dict())
    again.decompress()
    assert not again.is_compressed and np.array_equal(again.predict(data), y)
    again.load_state_dict(again.state_dict())
    with pytest.raises(fq.ArgumentError, match="compress"):
        fq.model("cnn", [1, 8, 8], 4).compress()


def test_disables_quantizers_in_a_block(data):
    model = make_model(data)
    model.disable_quantizer("fc.input_quantizer")
    y, on = model.predict(data), [row["enabled"] for row in model.quantizers()]
    with pytest.raises(KeyError), model.quantizers_off() as same:
        assert same is model and not np.array_equal(model.predict(data), y)
        assert not any(row["enabled"] for row in model.quantizers())
        raise KeyError
    assert [row["enabled"] for row in model.quantizers()] == on and np.array_equal(model.predict(data), y)
    with model.quantizers_off("conv1.*"):
        assert sum(row["enabled"] for row in model.quantizers()) == sum(on) - 2
    with pytest.raises(fq.ArgumentError, match="nothing"), model.quantizers_off("nothing"):
        pass


def test_calibrates_with_a_custom_loop(data):
    own, model = make_model(data), make_model(data)
    own.calibrate(data[0])
    with model.calibrating() as see:
        assert [see(data[0][i:i + 64]) for i in range(0, 256, 64)] == [64, 128, 192, 256]
    assert all(str(model.amax()[name]) == str(value) for name, value in own.amax().items())
    before = model.amax()
    with pytest.raises(KeyError), model.calibrating() as see:
        see(100 * data[0])
        raise KeyError
    assert str(model.amax()) == str(before)
    with pytest.raises(fq.ArgumentError, match="no batches"), model.calibrating():
        pass
