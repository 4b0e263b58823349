"""Both sides of the rows python.*: the same script with fakequant.torch and with the library that it replaces."""

import functools

import networks
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


NETWORKS = ("mlp", "cnn", "resnet20", "resnet18", "llama4x256")


def steps(name, settings, convert, bf16=False):
    return step.step_side(f"step.{name.split('.')[2]}.int8", settings, {"": convert}, bf16)


@row(*(f"python.step.{network}.int8/fakequant" for network in NETWORKS), "python.step.llama4x256.8da4w/fakequant")
def step_fakequant(name, settings):
    preset = name.rsplit(".", 1)[1].split("/")[0]
    return steps(name, settings, functools.partial(quantized.fakequant_torch, preset=preset))


@row(*(f"python.step.{network}.int8/modelopt_qat_int8" for network in NETWORKS))
def step_modelopt(name, settings):
    return steps(name, settings, quantized.modelopt_int8)


@row("python.step.llama4x256.8da4w/torchao_8da4w")
def step_torchao(name, settings):
    return steps(name, settings, quantized.torchao_8da4w)


@row(*(f"python.step.{network}.int8/{peer}" for network in NETWORKS for peer in ("torch_fp32", "torch_bf16")))
def step_torch(name, settings):
    return steps(name, settings, lambda network: network.model, bf16=name.endswith("bf16"))


def first_step(settings, convert):
    """A float network becomes a quantized one, and makes a step."""
    torch.set_num_threads(settings.threads)

    def run():
        network = networks.make_network("resnet50", False)
        network.model = convert(network)
        step.training_step(network, channels_last=False, compiled=False, bf16=False)

    return Side(run)


@row("python.first_step.resnet50.int8/fakequant")
def first_step_fakequant(name, settings):
    return first_step(settings, quantized.fakequant_torch)


@row("python.first_step.resnet50.int8/torch_fp32")
def first_step_torch(name, settings):
    return first_step(settings, lambda network: network.model)
