"""fakequant: quantization-aware training on the numbers you deploy.

    import fakequant as fq
    y = fq.modelopt.fake_tensor_quant(x, amax=2.5)  # an array of numpy, torch or another DLPack library, without a copy

The modules `fakequant.engines` and `fakequant.data` also work in a tree without the compiled module `fakequant._fakequant`.
"""
import sys as _sys

from . import waiting as _waiting

#: Version of the package. The compiled module must have the same one.
__version__ = "0.1.0"

try:
    with _waiting.short_spins():
        import fakequant._fakequant as _fakequant
except ModuleNotFoundError as _error:
    if _error.name != "fakequant._fakequant":
        raise

    def __getattr__(name):
        from importlib.machinery import PathFinder

        if name.startswith("__") or (name != "_fakequant" and PathFinder.find_spec(f"{__name__}.{name}", __path__)):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise ImportError(f"[fakequant] {name}: {__path__[0]} has no compiled module _fakequant, which it needs. Install the "
                          "package: pip install . in the source tree.", name=f"{__name__}._fakequant")
else:
    from ._fakequant import *  # noqa: F401,F403
    from ._fakequant import ArgumentError as ArgumentError
    from ._fakequant import BackendError as BackendError
    from ._fakequant import Error as Error
    from ._fakequant import FakequantWarning as FakequantWarning
    from ._fakequant import FileError as FileError
    from ._fakequant import NumericError as NumericError
    from ._fakequant import SystemError as SystemError

    if _fakequant.__version__ != __version__:
        raise ImportError(f"[fakequant] the package is {__version__}, and its library {_fakequant.__version__} "
                          f"({_fakequant.__file__}): remove both and install one of them, pip install .", name=__name__)

    for _name in ("modelopt", "pytorch_quantization", "torch_ref", "torchao", "onnx", "tripy", "tensorrt", "ggml",
                  "xnnpack"):
        _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = getattr(_fakequant, _name)
    del _name

    from . import methods as _methods  # noqa: F401
    from . import pickles as _pickles  # noqa: F401
    from .progress import Progress as Progress
    from .ranks import ranks as ranks
