"""Peers of the rows kernel.*: one call is the forward (including values saved for backward), the backward, or both."""

from dataclasses import replace

import torch
from peer import Side, read_array, row
from variants import fastest


@row("kernel.fake_quant_int8.l2/torch", "kernel.fake_quant_int8.dram/torch")
def torch_fake_quantize(_name, settings):
    """torch's own operator in the form that keeps a mask, without autograd's bookkeeping around it."""
    torch.set_num_threads(settings.threads)
    x, amax = read_array(settings.exchange, "x"), read_array(settings.exchange, "amax")
    scale = (amax[0] / 127).item()

    def run():
        return torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, scale, 0, -127, 127)

    return Side(run, lambda: {"y": run()[0]})


def modelopt_side(settings, function, *arguments):
    torch.set_num_threads(settings.threads)
    x = read_array(settings.exchange, "x").requires_grad_()
    amax = read_array(settings.exchange, "amax")[0].clone()

    def run():
        return function(x, amax, *arguments)

    return Side(run, lambda: {"y": run()})


@row("kernel.fake_quant_int8.l2/modelopt", "kernel.fake_quant_int8.dram/modelopt")
def modelopt_int8(_name, settings):
    from modelopt.torch.quantization.tensor_quant import fake_tensor_quant

    return modelopt_side(settings, fake_tensor_quant)


@row("kernel.fake_quant_e4m3.dram/modelopt")
def modelopt_e4m3(_name, settings):
    from modelopt.torch.quantization.tensor_quant import scaled_e4m3

    return modelopt_side(settings, scaled_e4m3, None, 4, 3)


def compiled_forms(amax, scale):
    """Ways to write forward and clipped backward: one loop for both, or two with x or a mask kept in between."""

    def fake_quant(x):
        return torch.clamp(torch.round(x * scale), -127.0, 127.0) / scale

    def clipped(x, dy):
        return torch.where(x.abs() <= amax, dy, 0.0)

    def compiled(function):
        return torch.compile(function, fullgraph=True, dynamic=False)

    together = compiled(lambda x, dy: (fake_quant(x), clipped(x, dy)))
    forward, backward = compiled(fake_quant), compiled(clipped)
    keeping = compiled(lambda x: (fake_quant(x), x.abs() <= amax))
    select = compiled(lambda mask, dy: torch.where(mask, dy, 0.0))

    def with_mask(x, dy):
        y, mask = keeping(x)
        return y, select(mask, dy)

    return {"one loop": together, "x kept": lambda x, dy: (forward(x), backward(x, dy)), "mask kept": with_mask}


@row("kernel.fake_quant_int8_fwd_bwd.l2/inductor", "kernel.fake_quant_int8_fwd_bwd.dram/inductor")
def inductor(_name, settings):
    """The fastest of the compiled forms on these inputs."""
    torch.set_num_threads(settings.threads)
    x, dy = read_array(settings.exchange, "x"), read_array(settings.exchange, "dy")
    amax = read_array(settings.exchange, "amax")[0]
    forms = compiled_forms(amax.item(), (127.0 / amax).item())
    side = fastest({name: lambda form=form: lambda: form(x, dy) for name, form in forms.items()})
    return replace(side, results=lambda: dict(zip(("y", "dx"), side.run())))


@row("kernel.backward_mask.dram/torch")
def backward_mask(_name, settings):
    torch.set_num_threads(settings.threads)
    mask, dy = read_array(settings.exchange, "mask", torch.bool), read_array(settings.exchange, "dy")
    zero = dy.new_zeros(())

    def run():
        return torch.where(mask, dy, zero)

    return Side(run, lambda: {"dx": run()})
