"""Both sides of the rows python.*: the same script with fakequant.torch and with the library that it replaces."""

import quantized
import step
import torch
from peer import Side, row

LARGE = 1 << 24  # elements: 64 MiB, beyond every cache


def call(settings, function, recorded):
    torch.set_num_threads(settings.threads)
    x = torch.linspace(-3, 3, 64).requires_grad_(recorded)
    return Side(lambda: function(x))


def fakequant_call(settings, recorded):
    quantized.fakequant_package()
    from fakequant.torch import fake_tensor_quant

    amax = torch.tensor(2.0)
    return call(settings, lambda x: fake_tensor_quant(x, amax), recorded)


@row("python.call.small/fakequant", "python.call.small_recorded/fakequant")
def small(name, settings):
    return fakequant_call(settings, "recorded" in name)


@row("python.call.small/torch.fake_quantize", "python.call.small_recorded/torch.fake_quantize")
def small_torch(name, settings):
    return call(settings, lambda x: torch.fake_quantize_per_tensor_affine(x, 2.0 / 127, 0, -127, 127), "recorded" in name)


def large(name, settings, function):
    torch.set_num_threads(settings.threads)
    backward = "forward" not in name
    x, amax = torch.randn(LARGE).requires_grad_(backward), torch.tensor(3.0)
    seed = torch.ones(LARGE)

    def run():
        y = function(x, amax)
        if backward:
            x.grad = None
            y.backward(seed)

    return Side(run)


LARGE_ROWS = ("python.fake_tensor_quant.dram", "python.fake_tensor_quant_forward.dram")


@row(*(f"{subject}/fakequant" for subject in LARGE_ROWS))
def large_fakequant(name, settings):
    quantized.fakequant_package()
    from fakequant.torch import fake_tensor_quant

    return large(name, settings, fake_tensor_quant)


@row(*(f"{subject}/modelopt" for subject in LARGE_ROWS))
def large_modelopt(name, settings):
    from modelopt.torch.quantization.tensor_quant import fake_tensor_quant

    return large(name, settings, fake_tensor_quant)


def steps(name, settings, forms):
    return step.step_side(f"step.{name.split('.')[2]}.int8", settings, forms)


NETWORKS = ("mlp", "cnn", "resnet20")


@row(*(f"python.step.{network}.int8/fakequant" for network in NETWORKS))
def step_fakequant(name, settings):
    return steps(name, settings, {"": quantized.fakequant_torch})


@row(*(f"python.step.{network}.int8/modelopt_qat_int8" for network in NETWORKS))
def step_modelopt(name, settings):
    return steps(name, settings, {"": quantized.modelopt_int8})


@row(*(f"python.step.{network}.int8/torch_fp32" for network in NETWORKS))
def step_torch(name, settings):
    return steps(name, settings, {"": lambda network: network.model})
