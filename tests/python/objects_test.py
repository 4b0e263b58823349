"""Models, quantizers and the training loop from Python."""
import pathlib

import fakequant as fq
import numpy as np
import pytest

DIGITS = pathlib.Path(__file__).parents[2] / "data" / "digits.h5"


@pytest.fixture(scope="module")
def digits():
    return fq.dataset(str(DIGITS)), fq.dataset(str(DIGITS), "test")


@pytest.fixture(scope="module")
def trained(digits):
    model = fq.model("mlp", digits[0].sample_shape, 10, options={"hidden": [32]})
    model.fit(digits[0], epochs=2, learning_rate=3e-3)
    return model


def test_descriptors():
    d = fq.QuantDescriptor(num_bits=4, axis=0, narrow_range=True)
    assert d.dict()["num_bits"] == 4 and d.dict()["narrow_range"]
    assert d == fq.QuantDescriptor.from_json(d.to_json()) and hash(d) == hash(fq.QuantDescriptor(**d.dict()))
    assert d != fq.QuantDescriptor() and "4bit" in repr(d)
    with pytest.raises(fq.ArgumentError, match="99 bits"):
        fq.QuantDescriptor(num_bits=99)
    with pytest.raises(fq.ArgumentError, match="num_bit"):
        fq.QuantDescriptor(num_bitz=8)


def test_quantizer_matches_the_function():
    x = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    q = fq.TensorQuantizer(fq.QuantDescriptor(narrow_range=True))
    with pytest.raises(fq.ArgumentError, match="amax"):
        q(x)
    q.collect(x)
    q.load_calib_amax()
    assert q.amax == np.abs(x).max()
    scale = q.amax / np.float32(127)
    assert np.array_equal(q(x), np.clip(np.round(x / scale), -127, 127) * scale)
    q.amax = 1.0
    assert np.abs(q(x)).max() == 1


@pytest.mark.parametrize("method", ["max", "percentile", "entropy", "mse", "one_pass"])
def test_calibrators(method):
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    calibrator = fq.make_calibrator(method)
    assert calibrator.empty and calibrator.method
    calibrator.collect(x)
    amax = calibrator.compute_amax()
    assert 0 < amax <= np.abs(x).max() * 1.001
    with pytest.raises(fq.NumericError):
        calibrator.collect(np.array([np.nan], np.float32))
    with pytest.raises(fq.ArgumentError, match="entropy|max"):
        fq.make_calibrator("maxx")


def save_and_load(model, tmp_path):
    model.save(str(tmp_path / "copy.h5"))
    return fq.load(str(tmp_path / "copy.h5"))


def test_sensitivity(trained, digits, tmp_path):
    model = save_and_load(trained, tmp_path)
    model.quantize("w4a4")
    model.calibrate(digits[0], samples=256)
    report = model.sensitivity(digits[0], samples=256)
    assert len(report["layers"]) == 2 and report["samples"] == 256
    with pytest.raises(fq.ArgumentError, match="quantizer"):
        save_and_load(trained, tmp_path).sensitivity(digits[0])


def test_auto_quantize(trained, digits, tmp_path):
    model = save_and_load(trained, tmp_path)
    plan = model.auto_quantize(digits[0], effective_bits=6, formats=["w4a4", "int8"], samples=256)
    assert plan["effective_bits"] <= 6 and {layer["format"] for layer in plan["layers"]} <= {"w4a4", "int8"}
    assert model.quantized and model.evaluate(digits[1])["accuracy"] > 0.7
    again = save_and_load(model, tmp_path)
    assert np.array_equal(again.predict(digits[1]), model.predict(digits[1]))
    with pytest.raises(fq.ArgumentError):
        save_and_load(trained, tmp_path).auto_quantize(digits[0])


def test_runs_from_data_to_engine(trained, digits, tmp_path):
    path = str(tmp_path / "float.h5")
    trained.save(path)
    model = fq.load(path)
    before = model.evaluate(digits[1])
    assert before["accuracy"] > 0.8 and before["count"] == len(digits[1])
    assert model.quantize("int8") is model and model.quantized
    assert model.calibrate(digits[0], samples=256)["quantizers"] > 0
    seen = []
    history = model.fit(digits[0], epochs=1, learning_rate=1e-4, validation=digits[1], on_epoch=seen.append)
    assert seen == history and history[0]["validation"]["accuracy"] > 0.8
    assert all(a is None or (np.asarray(a) > 0).all() for a in model.amax().values())
    saved = str(tmp_path / "int8.h5")
    model.save(saved)
    x, _ = digits[1].read([0, 1, 2])
    assert np.array_equal(fq.load(saved)(x), (model.eval(), model(x))[1])
    assert np.array_equal(model.predict(digits[1])[:3], model(x))
    onnx = tmp_path / "net.onnx"
    try:
        model.export(str(onnx))
    except fq.Error as error:
        pytest.skip(str(error))
    assert onnx.stat().st_size > 1000 and "input_quantizer" in str(model)


def test_state_dict_round_trips(trained, digits):
    state = trained.state_dict()
    assert [v.shape for k, v in state.items() if k.endswith("weight")] == [(32, 64), (10, 32)]
    other = fq.model("mlp", digits[0].sample_shape, 10, options={"hidden": [32]}, seed=5)
    name, first = next(iter(state.items()))
    assert not np.array_equal(other.state_dict()[name], first)
    other.load_state_dict(state)
    assert all(np.array_equal(other.state_dict()[k], v) for k, v in state.items())
    first += 1  # a copy: the model does not change
    assert not np.array_equal(trained.state_dict()[name], first)
    for broken, words in [({}, "missing"), ({**state, "more": first}, "'more' is no parameter"),
                          ({**state, name: np.ones(3, np.float32)}, name)]:
        with pytest.raises(fq.ArgumentError, match=words):
            other.load_state_dict(broken)


def test_accepts_arrays_as_data():
    random = np.random.default_rng(0)
    x = random.standard_normal((256, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    model = fq.model("mlp", [4], 2, options={"hidden": [8]})
    history = model.fit((x, y), epochs=10, learning_rate=1e-2)
    assert history[-1]["loss"] < history[0]["loss"] and model.evaluate((x, y))["accuracy"] > 0.9
    assert model.predict(x).shape == (256, 2)


def test_interrupt_stops_after_the_batch():
    x, y = np.zeros((512, 4), np.float32), np.zeros(512, np.int64)
    x[:, 0] = 1
    model = fq.model("mlp", [4], 2)
    import _thread

    def stop(report):
        _thread.interrupt_main()
    with pytest.raises(KeyboardInterrupt):
        model.fit((x, y), epochs=1000, on_epoch=stop)


def test_raises_callback_exceptions():
    def fail(report):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        fq.model("mlp", [4], 2).fit((np.ones((64, 4), np.float32), np.zeros(64, np.int64)), on_epoch=fail)


def test_rejects_invalid_input(tmp_path):
    with pytest.raises(fq.FileError) as caught:
        fq.load(str(tmp_path / "none.h5"))
    assert caught.value.path.endswith("none.h5")
    with pytest.raises(fq.ArgumentError, match="did you mean 'mlp'"):
        fq.model("mlpp", [4], 2)
    model = fq.model("mlp", [4], 2)
    for call, words in [(lambda: model.quantize("int9"), "int8"), (lambda: model.export("x", target="gpu"), "target"),
                        (lambda: model(np.ones((1, 5), np.float32)), "5 features"), (lambda: model("x"), "x is a str"),
                        (lambda: model.fit((np.ones((4, 4)), np.zeros(4))), "x is f64"),
                        (lambda: model.fit((np.ones((4, 4), np.float32), np.zeros(4, np.int64)), epochs=2, steps=3), "epochs and steps are both given"),
                        (lambda: model.fit(np.ones((4, 4), np.float32)), "4 images")]:
        with pytest.raises(fq.Error, match=words):
            call()


def list_classes(x):
    return (x[:, 0] > 0).astype(np.int64)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_invalid_row_changes_nothing(value):
    x = np.random.default_rng(0).standard_normal((128, 4)).astype(np.float32)
    y, bad = list_classes(x), x.copy()
    bad[77, 2] = value
    model = fq.model("mlp", [4], 2, options={"hidden": [8]})
    model.fit((x, y), epochs=20, learning_rate=0.01)
    before = model.evaluate((x, y))
    with pytest.raises(fq.NumericError, match="x of sample 77 of the data has (nan|inf)"):
        model.fit((bad, y), epochs=1)
    with pytest.raises(fq.NumericError, match="sample 77"):
        model.evaluate((bad, y))
    assert np.isfinite(np.concatenate([v.ravel() for v in model.state_dict().values()])).all()
    model.fit((x, y), epochs=2, learning_rate=0.001)
    assert model.evaluate((x, y))["accuracy"] >= before["accuracy"] - 0.1
    model.quantize("int8")
    with pytest.raises(fq.Error, match="sample 77"):
        model.calibrate((bad, y))


def test_reports_a_diverged_model_in_a_file(tmp_path):
    x = np.zeros((4, 4), np.float32)
    model = fq.model("mlp", [4], 2, options={"hidden": [8]})
    model.quantize("int8")
    model.calibrate(x + 1)
    state = model.state_dict()
    name = next(iter(state))
    model.load_state_dict(state | {name: np.full_like(state[name], np.nan)})
    with pytest.raises(fq.NumericError, match=r"\[model\] parameters/.*diverged: .*load_state_dict"):
        model.export(str(tmp_path / "m.onnx"))
    with pytest.raises(fq.NumericError):
        model.save(str(tmp_path / "m.h5"))
    assert not list(tmp_path.iterdir())


def test_export_rejects_unknown_endings(trained, tmp_path):
    for name in ("int8.txt", "int8.pte"):
        with pytest.raises(fq.ArgumentError, match=r"files end in \.onnx, \.gguf or \.safetensors"):
            trained.export(str(tmp_path / name))
        assert not (tmp_path / name).exists()


def test_rejects_data_of_other_columns(tmp_path, recwarn):
    h5py = pytest.importorskip("h5py", reason="there is no h5py")
    x = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)

    def written(name, columns, **attributes):
        with h5py.File(tmp_path / name, "w") as file:
            file["train/x"], file["train/y"] = x, list_classes(x)
            file["train/x"].attrs.update(attributes)
            file.attrs["columns"] = columns
        return fq.dataset(str(tmp_path / name))

    data, turned = written("a.h5", ["a", "b"], scale=0.5), written("b.h5", ["b", "a"], scale=0.5)
    model = fq.model("mlp", [2], 2, options={"hidden": [8]})
    model.fit(data, epochs=1)
    for call in (model.evaluate, model.predict, model.calibrate, lambda data: model.fit(data, epochs=1)):
        with pytest.raises(fq.ArgumentError, match="column 0 of the data is 'b'"):
            call(turned)
    model.evaluate(data)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="scale of 0.00392157, but the network was trained with 0.5"):
        model.evaluate(written("c.h5", ["a", "b"], scale=1 / 255))
