"""Data sets as Python's sequences."""
import pathlib

import fakequant as fq
import numpy as np
import pytest

DIGITS = pathlib.Path(__file__).parents[2] / "data" / "digits.h5"


@pytest.fixture(scope="module")
def digits():
    return fq.dataset(str(DIGITS))


def test_supports_items_slices_and_loops(digits):
    x, y = digits.read(range(len(digits)))
    assert len(digits) == len(x) == 1437 and repr(digits) == "Dataset of 1437 samples (1, 8, 8), 10 classes"
    for index in (0, 700, -1, np.int64(5)):
        own, label = digits[index]
        assert np.array_equal(own, x[index]) and label == y[index] and own.dtype == np.float32
    part = digits[100:200:3]
    assert isinstance(part, fq.Dataset) and len(part) == 34 and np.array_equal(part[1][0], x[103]) and part.classes == 10
    assert np.array_equal(part[5:][0][0], x[115])
    rows = list(digits)
    assert np.array_equal(np.stack([own for own, _ in rows]), x) and [label for _, label in rows] == list(y)
    assert len(fq.some_samples(digits, 20)) == 20


def test_wraps_arrays_as_a_data_set_without_copy():
    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    data = fq.TensorDataset(x, y)
    x[3, 0] = 99
    assert data[3][0][0] == 99 and data.classes == 3 and data.sample_shape == (2,) and data.class_names == []
    assert fq.TensorDataset(x)[0][1] is None and [label for _, label in fq.TensorDataset(x)] == [None] * 6
    model = fq.model("mlp", [2], 3, options={"hidden": [4]})
    assert np.array_equal(model.predict(data[2:4]), model.predict(x[2:4]))
    assert len(fq.Subset(data, [0, 5])) == 2


def test_keeps_its_parts_alive():
    part = fq.TensorDataset(np.ones((4, 3), np.float32))[1:3]
    walk = iter(fq.TensorDataset(np.full((2, 3), 7, np.float32)))
    assert (part[1][0] == 1).all() and (next(walk)[0] == 7).all()


@pytest.mark.parametrize("call, error, words", [
    (lambda data: data[1437], IndexError, "1437 is not a sample: there are 1437"),
    (lambda data: data[-1438], IndexError, "is not a sample"),
    (lambda data: data["x"], TypeError, "integer"),
    (lambda data: data[1.0], TypeError, "integer"),
    (lambda data: data[5:5], fq.ArgumentError, "no samples"),
    (lambda data: data[::-1], fq.ArgumentError, "ascending"),
    (lambda data: fq.Subset(data, [2, 1]), fq.ArgumentError, "ascending"),
    (lambda data: fq.Subset(data, [-1]), fq.ArgumentError, "sample -1"),
    (lambda data: data.read([1437]), fq.ArgumentError, "1437"),
    (lambda data: fq.some_samples(data, 0), fq.ArgumentError, "no samples"),
    (lambda data: fq.TensorDataset(None), TypeError, "NoneType"),
    (lambda data: fq.TensorDataset(np.ones((2, 2))), fq.ArgumentError, "f64"),
    (lambda data: fq.TensorDataset(np.ones((2, 2), np.float32), np.array([0, -1])), fq.ArgumentError, "-1"),
    (lambda data: fq.TensorDataset(np.ones((2, 2), np.float32), np.array([0])), fq.ArgumentError, "use i64 .2."),
])
def test_rejects_invalid_input(digits, call, error, words):
    with pytest.raises(error, match=words):
        call(digits)
