"""fakequant.torch: networks of torch on the codes that an engine multiplies, and ModelOpt's pieces under their names.

    import fakequant.torch as fqt
    model = fqt.quantize(model, "int8", example_input)       # the same parameters: optimizers and state dicts go on
    fqt.calibrate(model, loader)
    ...                                                      # train as before
    fqt.export(model, "model.onnx")

    from fakequant.torch import TensorQuantizer, fake_tensor_quant      # in place of modelopt.torch.quantization

Tensors go through DLPack: nothing is copied, and nothing is linked to libtorch. Tensors of a GPU go
the same way where the library was built with CUDA.
"""
from .calibration import calibrate, calibrating, quantizers_off
from .checkpoints import load_quantized
from .groups import parameter_groups
from .files import export, save, verify
from .functions import (dynamic_block_quant, fake_affine_tensor_quant, fake_tensor_quant, int_cast_ste,
                        legacy_fake_tensor_quant, scaled_e4m3)
from .networks import Quantized, quantize
from .report import layers, quantizers
from .tensor_quantizers import HistogramCalibrator, MaxCalibrator, TensorQuantizer

__all__ = ["quantize", "calibrate", "calibrating", "quantizers_off", "parameter_groups", "load_quantized", "export", "save",
           "verify", "layers", "quantizers", "Quantized",
           "fake_tensor_quant", "scaled_e4m3", "int_cast_ste",
           "dynamic_block_quant", "legacy_fake_tensor_quant", "fake_affine_tensor_quant", "TensorQuantizer", "MaxCalibrator",
           "HistogramCalibrator"]
