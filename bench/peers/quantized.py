"""Float networks made quantization-aware, as users of each library would: INT8 weights per output channel, activations
per tensor, ranges calibrated on the batch. Each conversion checks that the result quantizes. Batch norm is not changed.
"""

import os
import sys

import torch
from torch import nn

LAYERS = (nn.Conv2d, nn.Linear)


def check(good, what):
    if not good:
        raise AssertionError(what)


def find_layers(model):
    return [module for module in model.modules() if isinstance(module, LAYERS)]


class QuantConv2d(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)


class QuantLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)


def with_quantizers(model, make_input, make_weight):
    """Adds an input and a weight quantizer to each layer. The two functions make them from the layer."""
    for layer in find_layers(model):
        layer.input_quantizer, layer.weight_quantizer = make_input(layer), make_weight(layer)
        layer.__class__ = QuantConv2d if isinstance(layer, nn.Conv2d) else QuantLinear
    return model


def distinct(values):
    return len(torch.unique(values))


def check_grids(network):
    """At most 256 values in each input, at most 255 or 256 in each channel of a weight, whose channels differ."""
    x = torch.randn(4096)
    for layer in find_layers(network.model):
        quantized = layer.weight_quantizer(layer.weight).detach()
        check(2 < distinct(layer.input_quantizer(x)) <= 256, "an input is not on 8 bits")
        check(max(map(distinct, quantized)) <= 256 and not torch.equal(quantized, layer.weight), "nor a weight")
        check(len(quantized) < 8 or distinct(quantized) > 256, "the weight has one range, not one a channel")


def torch_observing(network):
    """torch.ao's default for training on x86: ranges follow the batches, observer and fake quantization in one operator."""
    from torch.ao.quantization import get_default_qat_qconfig

    config = get_default_qat_qconfig("x86")
    with_quantizers(network.model, lambda _: config.activation(), lambda _: config.weight())
    network.model(network.x)
    check_grids(network)
    return network.model


def torch_kept(network):
    """The INT8 grids with torch.ao's FakeQuantize. Observers are disabled after one batch."""
    from torch.ao import quantization

    activation = quantization.FakeQuantize.with_args(observer=quantization.MovingAverageMinMaxObserver, quant_min=0,
                                                     quant_max=255, dtype=torch.quint8)
    with_quantizers(network.model, lambda _: activation(),
                    lambda _: quantization.default_per_channel_weight_fake_quant())
    network.model(network.x)
    network.model.apply(quantization.disable_observer)
    check_grids(network)
    return network.model


def quantized_layers(model):
    """Lists the layers with enabled quantizers. ModelOpt also attaches disabled quantizers to embeddings and norms."""
    return [layer for layer in find_layers(model) if hasattr(layer, "weight_quantizer") and layer.weight_quantizer.is_enabled]


def modelopt(network, config):
    import modelopt.torch.quantization as mtq

    model = mtq.quantize(network.model, config, lambda model: model(network.x))
    for layer in quantized_layers(model):
        for quantizer in (layer.input_quantizer, layer.weight_quantizer):
            check(quantizer.is_enabled and quantizer.amax is not None, "a quantizer of ModelOpt is off or has no range")
    return model.train()


def modelopt_int8(network):
    import modelopt.torch.quantization as mtq

    model = modelopt(network, mtq.INT8_DEFAULT_CFG)  # which leaves out "lm_head"
    quantized = quantized_layers(model)
    check(len(quantized) == len(find_layers(model)) - hasattr(model, "lm_head"), "not every layer is quantized")
    check(all(layer.weight_quantizer.amax.numel() == len(layer.weight) for layer in quantized), "weights have one range")
    return model


def modelopt_fp8(network):
    import modelopt.torch.quantization as mtq

    model = modelopt(network, mtq.FP8_DEFAULT_CFG)
    check(all(module.num_bits == (4, 3) for name, module in model.named_modules() if name.endswith("weight_quantizer")),
          "the format is not E4M3")
    return model


def brevitas_layer(layer):
    from brevitas import nn as quant_nn
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat

    quantizers = {"weight_quant": Int8WeightPerChannelFloat, "input_quant": Int8ActPerTensorFloat,
                  "input_collect_stats_steps": 2, "bias": layer.bias is not None}
    if isinstance(layer, nn.Linear):
        made = quant_nn.QuantLinear(layer.in_features, layer.out_features, **quantizers)
    else:
        made = quant_nn.QuantConv2d(layer.in_channels, layer.out_channels, layer.kernel_size, stride=layer.stride,
                                    padding=layer.padding, **quantizers)
    made.load_state_dict(layer.state_dict(), strict=False)
    return made


def brevitas_int8(network):
    """Input scales become parameters after two batches of statistics, not 300: the timed steps come after them."""
    for parent in list(network.model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in LAYERS:
                setattr(parent, name, brevitas_layer(child))
    for _ in range(3):
        network.model(network.x)
    for layer in find_layers(network.model):
        check(layer.quant_weight().scale.numel() == len(layer.weight), "the weight has one range")
        check(layer.input_quant.is_quant_enabled and layer.input_quant.scale() is not None, "an input is not quantized")
    return network.model


class MaskedFakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(context, x, scale, bound):
        codes = torch.round(x / scale)
        context.save_for_backward(codes.abs() <= bound)
        return torch.clamp(codes, -bound, bound) * scale

    @staticmethod
    def backward(context, gradient):
        (mask,) = context.saved_tensors
        return gradient * mask, None, None


class Masked(nn.Module):
    """Straight-through inside of the range, by a function of autograd's that keeps a mask."""

    def __init__(self, amax):
        super().__init__()
        self.register_buffer("scale", amax / 127)

    def forward(self, x):
        return MaskedFakeQuant.apply(x, self.scale, 127.0)


class Detached(Masked):
    """The masked quantizer without an autograd.Function: autograd differentiates only the clamp."""

    def forward(self, x):
        clipped = torch.clamp(x, -127 * self.scale, 127 * self.scale)
        return clipped + (torch.round(clipped / self.scale) * self.scale - clipped).detach()


def input_ranges(network):
    found, hooks = {}, []
    for layer in find_layers(network.model):
        hooks.append(layer.register_forward_pre_hook(lambda layer, inputs: found.update({layer: inputs[0].abs().max()})))
    with torch.no_grad():
        network.model(network.x)
    for hook in hooks:
        hook.remove()
    return found


def expert(network, quantizer):
    ranges = input_ranges(network)

    def weight_range(layer):
        return layer.weight.detach().abs().amax(tuple(range(1, layer.weight.dim())), keepdim=True)

    with_quantizers(network.model, lambda layer: quantizer(ranges[layer]), lambda layer: quantizer(weight_range(layer)))
    check_grids(network)
    return network.model


def expert_function(network):
    return expert(network, Masked)


def expert_detached(network):
    return expert(network, Detached)


def round_e2m1(x):
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, halves to the even code, with the sign of x."""
    size = x.abs()
    rounded = torch.where(size < 2, torch.round(size * 2) / 2,
                          torch.where(size < 4, torch.round(size), torch.round(size / 2) * 2))
    return torch.copysign(rounded.clamp(max=6), x)


class Nvfp4(nn.Module):
    """Blocks of 16 along the last axis, scales in E4M3 above one of the tensor, taken from each input; straight through."""

    def __init__(self, amax):
        super().__init__()
        self.register_buffer("unit", amax / (6 * 448))

    def forward(self, x):
        last = x.shape[-1]
        blocks = nn.functional.pad(x.detach(), (0, -last % 16)).unflatten(-1, (-1, 16)).float()
        scale = (blocks.abs().amax(-1, keepdim=True) / (6 * self.unit)).clamp(2**-9, 448)
        scale = scale.to(torch.float8_e4m3fn).float() * self.unit
        values = (round_e2m1(blocks / scale) * scale).flatten(-2)[..., :last]
        return x + (values - x.detach())


def expert_nvfp4(network):
    ranges = input_ranges(network)
    with_quantizers(network.model, lambda layer: Nvfp4(ranges[layer]), lambda layer: Nvfp4(layer.weight.detach().abs().amax()))
    for layer in find_layers(network.model):
        row = layer.weight_quantizer(layer.weight).detach().flatten(0, -2)[0][:16]
        check(distinct(row.abs()) <= 8, "a block of a weight is not on FP4")
    return network.model


def modelopt_int4_blockwise(network):
    import modelopt.torch.quantization as mtq

    model = mtq.quantize(network.model, mtq.INT4_BLOCKWISE_WEIGHT_ONLY_CFG, lambda model: model(network.x))
    quantized = quantized_layers(model)
    check(len(quantized) == len(find_layers(model)), "not every layer is quantized")
    for layer in quantized:
        check(layer.weight_quantizer.is_enabled and layer.weight_quantizer.num_bits == 4, "a weight is not on INT4")
    return model.train()


def torchao(network, activations):
    """Weights of 4 bits in groups of 32 along the rows."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import FakeQuantizedLinear, IntxFakeQuantizeConfig, QATConfig

    weights = IntxFakeQuantizeConfig(torch.int4, group_size=32, is_symmetric=True)
    quantize_(network.model, QATConfig(activation_config=activations, weight_config=weights, step="prepare"))
    layers = find_layers(network.model)
    check(all(isinstance(layer, FakeQuantizedLinear) for layer in layers), "not every layer is quantized")
    check(all((layer.activation_fake_quantizer is None) == (activations is None) for layer in layers), "nor inputs as asked")
    return network.model


def torchao_8da4w(network):
    from torchao.quantization.qat import IntxFakeQuantizeConfig

    return torchao(network, IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False))


def torchao_4w_g32(network):
    """Weights alone."""
    return torchao(network, None)


def fakequant_package():
    """`ctest --test-dir build/release -R python.module` builds it, for the same minor version."""
    package = os.path.abspath("build/release/python-module")
    if package not in sys.path:
        sys.path.append(package)


def fakequant_torch(network, preset="int8"):
    """Ours, from Python."""
    fakequant_package()
    import fakequant.torch as fqt

    model = fqt.calibrate(fqt.quantize(network.model, preset, network.x), [network.x])
    if not hasattr(network.model, "lm_head"):
        check(len(model.lowered_modules()) == 1 and not model.floats, "some of the network stays with torch")
    return model
