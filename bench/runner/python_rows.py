"""Rows with both sides in Python (bench/peers/python.py). Our side is "<subject>/fakequant"."""


def _row(name, unit, units_per_second):
    return {"name": name, "unit": unit, "clock": "cpu", "python": True, "both_python": True, "units_per_second": units_per_second}


def _step_rows():
    for network in ("mlp", "cnn", "resnet20", "resnet18", "llama4x256"):
        for peer in ("modelopt_qat_int8", "torch_fp32", "torch_bf16"):
            yield _row(f"python.step.{network}.int8/{peer}", "ms", 1e3)
    yield _row("python.step.llama4x256.8da4w/torchao_8da4w", "ms", 1e3)
    yield _row("python.first_step.resnet50.int8/torch_fp32", "ms", 1e3)


ROWS = [_row("python.call.small/torch.fake_quantize", "us", 1e6), _row("python.call.small_recorded/torch.fake_quantize", "us", 1e6),
        _row("python.fake_tensor_quant.dram/modelopt", "ms", 1e3), _row("python.fake_tensor_quant_forward.dram/modelopt", "ms", 1e3),
        *_step_rows()]


def ours(name):
    """The row of our side."""
    return name.rsplit("/", 1)[0] + "/fakequant"
