"""fakequant: quantization-aware training on the numbers you deploy.

    import fakequant as fq
    y = fq.modelopt.fake_tensor_quant(x, amax=2.5)      # numpy, torch, or whatever speaks DLPack: nothing is copied
"""
import sys as _sys

from . import waiting as _waiting

with _waiting.short_spins():
    from . import _fakequant
from ._fakequant import *  # noqa: F401,F403
from ._fakequant import ArgumentError as ArgumentError, BackendError as BackendError, Error as Error, FileError as FileError
from ._fakequant import FakequantWarning as FakequantWarning, NumericError as NumericError, SystemError as SystemError

#: Of the package; its module of the library must be of the same.
__version__ = "0.1.0"
if _fakequant.__version__ != __version__:
    raise ImportError(f"[fakequant] the package is {__version__}, and its library {_fakequant.__version__} "
                      f"({_fakequant.__file__}): remove both and install one of them, pip install .", name=__name__)

for _name in ("modelopt", "pytorch_quantization", "torch_ref", "torchao", "onnx", "tripy", "tensorrt", "ggml",
              "xnnpack"):
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = getattr(_fakequant, _name)
del _name

from . import dataset_methods as _dataset_methods, loop as _loop, pickles as _pickles  # noqa: E402,F401
from .progress import Progress as Progress  # noqa: E402
from .ranks import ranks as ranks  # noqa: E402
