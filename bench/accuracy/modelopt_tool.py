"""NVIDIA's ModelOpt: its INT8, FP8 and NVFP4 configurations, and INT8's with fewer bits; ranges of largest magnitude, of
least squared error below 8 bits, fixed in training like its quantizers."""

import copy

import modelopt.torch.quantization as mtq
from formats import Unsupported, layer_formats

FOLLOWS_FLOAT = False
CONFIGS = {"int": mtq.INT8_DEFAULT_CFG, "fp8": mtq.FP8_DEFAULT_CFG, "nvfp4": mtq.NVFP4_DEFAULT_CFG}


def make_config(network, wanted):
    config = copy.deepcopy(CONFIGS[wanted.kind])
    if wanted.kind == "int":
        for name, _, format in layer_formats(network, wanted):
            for role, bits, axis in (("weight", format.weight_bits, 0), ("input", format.activation_bits, None)):
                config["quant_cfg"].append({"quantizer_name": f"*{name}.{role}_quantizer", "enable": True,
                                            "cfg": {"num_bits": bits, "axis": axis}})
        if wanted.weight_bits < 8:
            config["algorithm"] = "mse"
    return config


def quantized(network, wanted, x):
    network.eval()
    try:
        model = mtq.quantize(network, make_config(network, wanted), lambda model: model(x))
        model(x[:2])
    except (RuntimeError, ImportError, AssertionError) as error:
        raise Unsupported(str(error).splitlines()[0]) from error
    return model
