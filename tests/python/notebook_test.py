"""Output in a notebook and a terminal: tables, pages of histograms and plans, a progress line."""
import io
import re
import sys
import types
from html import unescape
from html.parser import HTMLParser

import fakequant as fq
import numpy as np
import pytest


class Checked(HTMLParser):
    """Fails on tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in ("rect", "meta", "br", "path", "line", "col"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.standard_normal((256, 8)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


@pytest.fixture(scope="module")
def model(data):
    model = fq.model("mlp", [8], 2, options={"hidden": [8]})
    model.fit(data, epochs=3, learning_rate=1e-2)
    model.quantize("w4a4")
    model.calibrate(data)
    return model


def test_shows_a_float_model_as_an_operator_table():
    model = fq.model("mlp", [8], 2, options={"hidden": [8]})
    found, page = model.summary(), model._repr_html_()
    assert found["parameters"] == 8 * 8 + 8 + 8 * 2 + 2 and model.summary(batch=4)["multiply_adds"] == 4 * found["multiply_adds"]
    assert "90 parameters" in page and page.count("<tr>") == len(found["rows"]) + 1
    Checked(page)


def test_shows_a_quantized_model_as_a_quantizer_table(model):
    page, rows = model._repr_html_(), model.quantizers()
    assert page.count("<tr>") == len(rows) + 1 and "fc1.weight_quantizer" in page and "int8 narrow" in page
    Checked(page)
    first = rows[0]
    assert first["enabled"] and not first["weight"] and first["amax"][0] == first["amax"][1] > 0
    assert isinstance(first["descriptor"], fq.QuantDescriptor)
    assert next(row for row in rows if not row["enabled"])["amax"] is None


def test_sets_ranges_by_name(model, data):
    before = model.amax()
    with pytest.raises(fq.ArgumentError, match="'fc9.input_quantizer' is no quantizer"):
        model.set_amax({"fc1.input_quantizer": 1.0, "fc9.input_quantizer": 1.0})
    assert model.amax()["fc1.input_quantizer"] == before["fc1.input_quantizer"]
    model.set_amax({"fc1.input_quantizer": 1.5})
    assert model.amax()["fc1.input_quantizer"] == 1.5
    model.set_amax({"fc1.input_quantizer": before["fc1.input_quantizer"]})
    grid = model.weights_on_grid(["fc1"])["fc1"]
    assert all(len(np.unique(row)) <= 255 for row in grid) and not np.array_equal(grid, model.state_dict()["fc1.weight"])


def test_shows_histograms_in_a_frame(model, data, tmp_path):
    page = model.calibration_page(data, title="a <network>", samples=64)
    assert "a &#60;network&#62;" in str(page) and str(page).count("<svg") >= 4 and ">64<" in str(page)
    frame = page._repr_html_()
    assert frame.startswith("<iframe") and unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1)) == str(page)
    page.save(str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == str(page)
    with pytest.raises(fq.ArgumentError):
        fq.model("mlp", [8], 2).calibration_page(data)


def test_shows_sensitivities_and_plans(model, data):
    report = model.sensitivity(data)
    Checked(report._repr_html_())
    assert isinstance(report, dict) and report._repr_html_().count("<svg") == len(report["layers"]) > 0
    fresh = fq.model("mlp", [8], 2, options={"hidden": [8]})
    plan = fresh.auto_quantize(data, effective_bits=6, formats=["w4a4", "int8"])
    assert isinstance(plan, dict) and "<svg" in str(plan.page()) and plan._repr_html_().startswith("<iframe")


def test_prints_the_progress_line(data):
    stream = io.StringIO()
    reports = []
    fq.model("mlp", [8], 2).fit(data, epochs=2, progress=fq.Progress(stream), on_step=reports.append)
    lines = stream.getvalue().split("\r")
    assert "100 %" in lines[-1] and "epoch 2" in lines[-1] and lines[-1].endswith("\n") and "images/s" in lines[-1]
    assert [report["step"] for report in reports] == list(range(1, 9)) and reports[-1]["steps"] == 8
    assert not fq.Progress().shown  # neither a terminal nor a notebook


def test_prints_the_progress_line_in_a_notebook(data, monkeypatch):
    shown = []

    class Handle:
        def update(self, page):
            shown.append(page)

    def display(page, display_id):
        shown.append(page)
        return Handle()
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(HTML=str, display=display))
    fq.model("mlp", [8], 2).fit(data, epochs=1)
    assert shown[0].startswith("<progress max=4 value=1>") and shown[-1].startswith("<progress max=4 value=4>")
