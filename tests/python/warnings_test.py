"""Warnings of the library as Python's."""
import threading
import warnings

import fakequant as fq
import numpy as np
import pytest


def warned(call):
    with warnings.catch_warnings(record=True) as report:
        warnings.simplefilter("always")
        call()
    return [(entry.category, str(entry.message), entry.filename) for entry in report]


def test_issues_python_warnings(tmp_path):
    """Once a call, at the line that called, in one category that filters know."""
    x, y = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32), np.zeros(64, np.int64)
    encoder = fq.model("encoder", [8], 2, options={"vocabulary": 10, "width": 8, "heads": 2, "layers": 1})
    (category, text, place), = warned(lambda: encoder.quantize("int8"))
    assert category is fq.FakequantWarning and issubclass(category, UserWarning)
    assert "ONNX Runtime computes" in text and place == __file__
    # Warnings given when the model was quantized are not repeated for copies.
    encoder.save(str(tmp_path / "m.h5"))
    assert warned(lambda: fq.load(str(tmp_path / "m.h5"))) == []
    model = fq.model("cnn", [1, 8, 8], 2)
    for fit in (lambda: model.fit((x, y), epochs=2), lambda: model.qat((x, y), "int8", epochs=1, quiet=True)):
        assert [(category, place) for category, text, place in warned(fit) if "64 labels of the training data are 0" in text] == [
            (fq.FakequantWarning, __file__)]
    # From another thread, and of a call that a filter ends.
    report = []
    thread = threading.Thread(target=lambda: report.extend(warned(lambda: model.fit((x, y), epochs=1))))
    thread.start()
    thread.join()
    assert len(report) == 1 and report[0][2] == __file__, report
    with warnings.catch_warnings():
        warnings.simplefilter("error", fq.FakequantWarning)
        with pytest.raises(fq.FakequantWarning, match="64 labels"):
            model.fit((x, y), epochs=1)
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model.fit((x, y), epochs=1)
    assert warned(lambda: fq.model("cnn", [1, 8, 8], 2)) == []


def test_issues_warnings_of_a_failed_call():
    model = fq.model("cnn", [1, 8, 8], 2)
    x = np.zeros((64, 1, 8, 8), np.float32)
    x[3] = np.nan

    def failing():
        with pytest.raises(fq.NumericError):
            model.fit((x, np.zeros(64, np.int64)), epochs=1)
        for _ in range(3):
            pass

    assert ["64 labels" in text for _, text, _ in warned(failing)] == [True]
