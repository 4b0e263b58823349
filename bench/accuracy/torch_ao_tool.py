"""torch.ao's quantization-aware training in graph mode: convolution and batch norm fused, ranges that follow the batches;
the quantizers of its default for x86 with fewer bits."""

import warnings

import torch
from formats import Unsupported, layer_formats
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.quantize_fx import prepare_qat_fx

FOLLOWS_FLOAT = False


def qconfig(format):
    most = 2**(format.weight_bits - 1)
    return QConfig(
        activation=FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, dtype=torch.quint8, quant_min=0,
                                          quant_max=2**format.activation_bits - 1, reduce_range=False),
        weight=FakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver, dtype=torch.qint8, quant_min=-most,
                                      quant_max=most - 1, qscheme=torch.per_channel_symmetric, ch_axis=0))


def quantized(network, wanted, x):
    if wanted.kind != "int":
        raise Unsupported("torch.ao has integers alone")
    mapping = QConfigMapping().set_global(qconfig(wanted))
    layers = layer_formats(network, wanted)
    for name, _, format in (layers[0], layers[-1]):
        mapping.set_module_name(name, qconfig(format))
    network.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = prepare_qat_fx(network, mapping, (x,))
    with torch.no_grad():
        model.eval()(x)  # observers take ranges from these samples
    return model
