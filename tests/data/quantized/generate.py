"""generate.py FOLDER: small networks as ModelOpt's and PyTorch's quantizers write them.

Needs torch, nvidia-modelopt, transformers, compressed-tensors and onnx."""

import os
import sys

import torch
from torch import nn

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
torch.manual_seed(0)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


x = torch.randn(16, 1, 8, 8)


def modelopt(name, config):
    import modelopt.torch.quantization as mtq

    network = Network().eval()
    mtq.quantize(network, config, lambda model: model(x))
    torch.onnx.export(network, (x[:1],), os.path.join(folder, name), input_names=["x"], output_names=["y"], dynamo=False,
                      opset_version=17, dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})


def torch_fake_quantized(name):
    """torch.ao's eager quantization-aware training, whose FakeQuantize modules the exporter writes as pairs."""
    from torch.ao import quantization as tq

    signed = tq.FakeQuantize.with_args(observer=tq.MinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
                                       qscheme=torch.per_tensor_symmetric)
    weights = tq.FakeQuantize.with_args(observer=tq.PerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
                                        qscheme=torch.per_channel_symmetric, ch_axis=0)
    network = Network().train()
    network.qconfig = tq.QConfig(activation=signed, weight=weights)
    network = nn.Sequential(tq.QuantStub(), network)
    network.qconfig = network[1].qconfig
    tq.prepare_qat(network, inplace=True)
    network(x)
    network.eval()
    network.apply(tq.disable_observer)
    torch.onnx.export(network, (x[:1],), os.path.join(folder, name), input_names=["x"], output_names=["y"], dynamo=False,
                      opset_version=17, dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})


def modelopt_mxfp4(name):
    """A Llama of one layer, as a folder of transformers'."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(architectures=["LlamaForCausalLM"], vocab_size=20, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False)
    network = LlamaForCausalLM(config).to(torch.bfloat16)
    network.config.architectures = config.architectures
    mtq.quantize(network, mtq.MXFP4_DEFAULT_CFG, lambda model: model(torch.randint(0, 20, (2, 16))))
    export_hf_checkpoint(network, export_dir=os.path.join(folder, name))


def compressed_nvfp4(name):
    """Two matrices as compressed-tensors packs them."""
    from compressed_tensors.compressors import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    from safetensors.torch import save_file

    torch.manual_seed(0)
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", symmetric=True, dynamic=False, group_size=16,
                            observer="static_minmax", scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)
    out = {}
    for layer, shape in (("first", (64, 64)), ("second", (10, 64))):
        weight = torch.randn(shape) * 0.05
        whole, blocks = generate_gparam(weight.min(), weight.max()), weight.reshape(shape[0], -1, 16)
        scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=whole)
        packed = NVFP4PackedCompressor.compress({"weight": weight, "weight_scale": scale, "weight_global_scale": whole.reshape(1)},
                                                QuantizationScheme(targets=["Linear"], weights=args))
        out |= {f"{layer}.{key}": value.contiguous() for key, value in packed.items()} | {f"{layer}.bias": torch.zeros(shape[0])}
    save_file(out, os.path.join(folder, name))


if __name__ == "__main__":
    import modelopt.torch.quantization as mtq

    modelopt("modelopt_int8.onnx", mtq.INT8_DEFAULT_CFG)
    modelopt("modelopt_fp8.onnx", mtq.FP8_DEFAULT_CFG)
    torch_fake_quantized("torch_int8.onnx")
    modelopt_mxfp4("modelopt_mxfp4")
    compressed_nvfp4("compressed_nvfp4.safetensors")
