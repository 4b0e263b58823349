"""fakequant.torch: quantized networks of torch, and ModelOpt's functions and quantizers under their names.

    import fakequant.torch as fqt
    model = fqt.quantize(model, "int8", example_input)  # shares the parameters, so optimizers and state dicts stay valid
    fqt.calibrate(model, loader)
    ...                                                 # train as usual
    fqt.export(model, "model.onnx")

    from fakequant.torch import TensorQuantizer, fake_tensor_quant  # instead of modelopt.torch.quantization

The library reads tensors through DLPack without a copy, and does not link libtorch. Tensors on a GPU require a library that was built with
CUDA.
"""
from .calibration import calibrate, calibrating, load_quantized, quantizers_off, set_amax
from .checkpoint import load, save
from .export import export, verify
from .modelopt import (
                       HistogramCalibrator,
                       MaxCalibrator,
                       TensorQuantizer,
                       dynamic_block_quant,
                       fake_affine_tensor_quant,
                       fake_tensor_quant,
                       int_cast_ste,
                       legacy_fake_tensor_quant,
                       scaled_e4m3,
)
from .modules import Quantized
from .quantize import parameter_groups, quantize, quantize_
from .report import Summary, layers, print_quant_summary, quantizers, summary

__all__ = ["quantize", "quantize_", "calibrate", "calibrating", "quantizers_off", "set_amax", "parameter_groups", "load_quantized",
           "export", "save", "load", "verify", "summary", "Summary", "layers", "quantizers", "print_quant_summary", "Quantized",
           "fake_tensor_quant", "scaled_e4m3", "int_cast_ste",
           "dynamic_block_quant", "legacy_fake_tensor_quant", "fake_affine_tensor_quant", "TensorQuantizer", "MaxCalibrator",
           "HistogramCalibrator"]
