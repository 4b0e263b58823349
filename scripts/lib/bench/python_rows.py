"""Rows with both sides in Python (bench/peers/python.py). Our side is "<subject>/fakequant"."""


def _row(name, unit, units_per_second):
    return {"name": name, "unit": unit, "clock": "cpu", "python": True, "both_python": True, "units_per_second": units_per_second}


ROWS = [_row("python.call.small/torch.fake_quantize", "us", 1e6), _row("python.call.small_recorded/torch.fake_quantize", "us", 1e6),
        _row("python.fake_tensor_quant.dram/modelopt", "ms", 1e3), _row("python.fake_tensor_quant_forward.dram/modelopt", "ms", 1e3),
        *(_row(f"python.step.{network}.int8/{peer}", "ms", 1e3) for network in ("mlp", "cnn", "resnet20")
          for peer in ("modelopt_qat_int8", "torch_fp32"))]


def ours(name):
    """The row of our side."""
    return name.rsplit("/", 1)[0] + "/fakequant"
