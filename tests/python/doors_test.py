"""Every entry point of data sets and models, ten thousand times with random arguments: no leak, crash or changed model."""
import gc
import os

import fakequant as fq
import numpy as np
import pytest

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = np.arange(8) % 2


def quantized():
    model = fq.model("mlp", [4], 2, options={"hidden": [4]})
    model.quantize("int8")
    model.calibrate(X)
    return model


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fails(call):
    with pytest.raises((fq.Error, IndexError)):
        call()


def off_in_a_block(model, pattern="*"):
    with model.quantizers_off(pattern):
        pass


def there_and_back(model):
    model.compress()
    model.decompress()


DATA = fq.TensorDataset(X, Y)
#: (how often, what)
OFTEN = {
    "TensorDataset": (10_000, lambda model: fq.TensorDataset(X, Y)),
    "item": (10_000, lambda model: DATA[3]),
    "slice": (10_000, lambda model: DATA[2:5]),
    "loop": (2_000, lambda model: list(DATA)),
    "predict": (10_000, lambda model: model.predict(DATA)),
    "evaluate": (10_000, lambda model: model.evaluate((X, Y))),
    "quantizers": (10_000, lambda model: model.quantizers()),
    "quantizers_off": (2_000, off_in_a_block),
    "calibrate": (2_000, lambda model: model.calibrate(X)),
    "collect_ranges": (2_000, lambda model: model.collect_ranges(X)),
    "compress": (2_000, there_and_back),
    "set_training": (10_000, lambda model: model.set_training(["fc1"], False)),
    "interrupts": (10_000, lambda model: fq._fakequant.Interrupts().check()),
    "no item": (2_000, lambda model: fails(lambda: DATA[8])),
    "no file": (2_000, lambda model: fails(lambda: model.verify("/none.onnx", X))),
    "wrong samples": (2_000, lambda model: fails(lambda: model.predict(X[:, :3]))),
}


@pytest.mark.parametrize("door", OFTEN)
def test_does_not_leak(door):
    pytest.importorskip("onnxruntime") if door == "no file" else None
    (count, call), model = OFTEN[door], quantized()
    for _ in range(count // 10):
        call(model)
    before = resident()
    for _ in range(count):
        call(model)
    assert resident() - before < 2 << 20  # 2,000 objects of 1 KiB, or 10,000 of 200 bytes


WHATEVER = [None, True, -1, 1.5, float("nan"), 2**70, "", "x", b"x", [], [1], {}, {"x": 1}, (), (1,), (X, Y, Y), (None, None), object, np.zeros(0),
            np.zeros((0, 4), np.float32), np.zeros((2, 3), np.float32), np.array(1.0), np.array(["a"]), np.zeros((2, 4), complex),
            np.full((2, 4), np.nan, np.float32), X[::2, ::2], (X, Y[:3]), (X, -1 - Y), (X, 1e9 * Y), slice(None), range(3), lambda x: x]
DOORS = {
    "dataset": lambda model, it: fq.dataset(it), "TensorDataset": lambda model, it: fq.TensorDataset(it),
    "labels": lambda model, it: fq.TensorDataset(X, it), "Subset": lambda model, it: fq.Subset(DATA, it),
    "some_samples": lambda model, it: fq.some_samples(DATA, it), "item": lambda model, it: DATA[it], "read": lambda model, it: DATA.read(it),
    "predict": lambda model, it: model.predict(it), "evaluate": lambda model, it: model.evaluate(it),
    "batch_size": lambda model, it: model.predict(X, batch_size=it), "calibrate": lambda model, it: quantized().calibrate(it),
    "method": lambda model, it: quantized().calibrate(X, method=it), "percentile": lambda model, it: quantized().calibrate(X, percentile=it),
    "collect_ranges": lambda model, it: quantized().collect_ranges(it), "choose_ranges": lambda model, it: quantized().choose_ranges(it),
    "sensitivity": lambda model, it: model.sensitivity(it), "verify": lambda model, it: model.verify(it, X),
    "verify data": lambda model, it: model.verify(__file__, it), "quantizers_off": off_in_a_block,
    "set_training": lambda model, it: model.set_training(it, True), "load_state_dict": lambda model, it: model.load_state_dict(it),
    "auto_quantize": lambda model, it: fq.model("mlp", [4], 2, options={"hidden": [4]}).auto_quantize(X, effective_bits=it, formats=["w4a4", "int8"]),
    "export": lambda model, it: model.export("/dev/null/x", target=it),
}


@pytest.mark.parametrize("door", DOORS)
def test_accepts_or_rejects_any_input(door):
    model = quantized()
    y = model.predict(X)
    for it in WHATEVER:
        try:
            DOORS[door](model, it)
        except (fq.Error, TypeError, ValueError, IndexError, OverflowError, KeyError) as error:
            assert str(error)
    assert np.array_equal(model.predict(X), y)
