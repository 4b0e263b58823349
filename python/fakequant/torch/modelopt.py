"""ModelOpt's and pytorch-quantization's functions, quantizers and calibrators under their names. They are fake quantization: torch computes
the products."""
import torch
from torch import nn

from .. import _fakequant as _fq
from .tensors import checked, make_dense

_fake_tensor_quant, _scaled_e4m3 = _fq.modelopt.fake_tensor_quant, _fq.modelopt.scaled_e4m3


class _FakeQuantize(torch.autograd.Function):
    """A function of the library. Its backward keeps one bit for each element.

    The call comes before the checks, because checks of each argument take as long as the call.
    """

    @staticmethod
    def forward(ctx, x, function, arguments):
        try:
            y, ctx.backward_function = function(x.detach(), *arguments, True)
        except (_fq.ArgumentError, AttributeError):  # as in _quantize, or x is not a tensor
            values = make_dense(checked(x, function.__name__))
            y, ctx.backward_function = function(values, *map(_without_gradient, arguments), True)
        ctx.memory_format = torch.contiguous_format if y.is_contiguous() else torch.channels_last
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        return ctx.backward_function(grad_y.detach().contiguous(memory_format=ctx.memory_format)), None, None


def _without_gradient(value):
    """Returns a tensor without its gradient, as a copy only if its layout requires one. Other values are unchanged."""
    if isinstance(value, torch.Tensor):
        value = value.detach() if value.requires_grad else value
        return value if value.is_contiguous() else make_dense(value)
    return value


def _with_gradient(function, x, *arguments):
    """Calls a function of the library with a recorded gradient. Positional arguments take half the time of keywords."""
    return _FakeQuantize.apply(x, function, arguments)


def _quantize(function, inputs, amax, bias, *rest):
    if not isinstance(inputs, torch.Tensor):
        checked(inputs, function.__name__)  # raises
    if inputs.requires_grad and torch.is_grad_enabled():
        return _with_gradient(function, inputs, amax, bias, *rest)
    try:
        return function(inputs, amax, bias, *rest)
    except _fq.ArgumentError:  # other strides, or a tensor with a gradient. The call below raises for other arguments
        values = _without_gradient(checked(inputs, function.__name__))
        return function(values, _without_gradient(amax), _without_gradient(bias), *rest)


def fake_tensor_quant(inputs, amax, bias=None, num_bits=8, unsigned=False, narrow_range=True, trt_high_precision_dtype=None,
                      pass_through_bwd=False, block_size=None, axis=None):
    """Quantizes to integers like ModelOpt's fake_tensor_quant: the same bits on a CPU, and the same straight-through gradient.

    As in ModelOpt, trt_high_precision_dtype, block_size and axis are for its ONNX export only and change no number.
    """
    return _quantize(_fake_tensor_quant, inputs, amax, bias, num_bits, unsigned, narrow_range, pass_through_bwd)


def scaled_e4m3(inputs, amax=None, bias=None, E=4, M=3, trt_high_precision_dtype=None, pass_through_bwd=False):
    """Quantizes to FP8 like ModelOpt's scaled_e4m3. trt_high_precision_dtype changes no number."""
    return _quantize(_scaled_e4m3, inputs, amax, bias, E, M, pass_through_bwd)


def int_cast_ste(x, num_bits, unsigned=False, narrow_range=True):
    """Rounds to integers without a scale."""
    return _with_gradient(_fq.modelopt.int_cast_ste, x, num_bits, unsigned, narrow_range)


def dynamic_block_quant(inputs, block_size, amax, bias, num_bits, scale_bits, trt_high_precision_dtype=None,
                        onnx_quantizer_type="dynamic", pass_through_bwd=True):
    """Quantizes to MX formats and NVFP4 like ModelOpt's dynamic_block_quant. Blocks are along the last axis, and the input sets their scales.

    `amax` is the range of the whole tensor, or None. The bits are equal to ModelOpt's CUDA extension. trt_high_precision_dtype and
    onnx_quantizer_type are for its ONNX export only and change no number.
    """
    if bias is not None:
        raise _fq.ArgumentError("[dynamic_block_quant] bias is not supported, and ModelOpt does not read it: use None")
    if isinstance(amax, torch.Tensor) and amax.numel() > 1:
        amax = amax.detach().amax()  # as ModelOpt
    return _with_gradient(_fq.modelopt.dynamic_block_quantize, inputs, num_bits, scale_bits, block_size, amax, False, pass_through_bwd)


def legacy_fake_tensor_quant(inputs, amax, num_bits=8, unsigned=False, narrow_range=True):
    """Quantizes like pytorch-quantization's fake_tensor_quant: codes / scale."""
    return _with_gradient(_fq.pytorch_quantization.legacy_fake_tensor_quant, inputs, amax, num_bits, unsigned, narrow_range)


def fake_affine_tensor_quant(inputs, min_range, max_range, num_bits=8):
    """Quantizes like pytorch-quantization's fake_affine_tensor_quant."""
    return _with_gradient(_fq.pytorch_quantization.fake_affine_tensor_quant, inputs, min_range, max_range, num_bits)


class _Calibrator:
    def __init__(self, method, axis, num_bits, unsigned, **options):
        axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
        self._calibrator = _fq.make_calibrator(method, axis=axes, **options)
        self._num_bits, self._unsigned = num_bits, unsigned

    def collect(self, x):
        """Adds a batch. Integers are converted to float32."""
        x = make_dense(checked(x, "collect"))
        if x.dtype is torch.bool or x.is_complex():
            raise _fq.ArgumentError(f"[collect] x is {x.dtype}: use floats or integers")
        self._calibrator.collect(x if x.is_floating_point() else x.float())
        self._device = x.device

    def reset(self):
        """Forgets all batches."""
        self._calibrator.reset()

    def _amax(self, **options):
        if self._calibrator.empty:
            return None
        amax = self._calibrator.compute_amax(num_bits=self._num_bits, unsigned=self._unsigned, **options)
        if isinstance(amax, _fq.Tensor):  # bfloat16, which numpy does not have
            return torch.from_numpy(amax.to("float32").numpy().copy()).to(self._device, torch.bfloat16)
        return torch.from_numpy(amax.copy()).to(self._device)


class MaxCalibrator(_Calibrator):
    """Finds the largest magnitude of all batches, for each index of `axis`. With `track_amax`, `amaxs` has the range of each batch."""

    def __init__(self, num_bits=8, axis=None, unsigned=False, track_amax=False):
        super().__init__("max", axis, num_bits, unsigned)
        self._axis, self._track_amax, self._dtype = axis, bool(track_amax), None
        if self._track_amax:
            self._amaxs = []

    @property
    def amaxs(self):
        """The ranges of the batches, numpy arrays. Raises ArgumentError without track_amax."""
        if not self._track_amax:
            raise _fq.ArgumentError("[MaxCalibrator] amaxs is not tracked: make the calibrator with track_amax=True")
        return self._amaxs

    def collect(self, x):
        super().collect(x)
        self._dtype = None if x.is_floating_point() else x.dtype
        if self._track_amax:
            batch = MaxCalibrator(self._num_bits, self._axis, self._unsigned)
            batch.collect(x)
            self._amaxs.append(batch.compute_amax().float().cpu().numpy())

    def compute_amax(self):
        """Returns amax in the type of the batches, or None before the first batch."""
        amax = self._amax()
        return amax if amax is None or self._dtype is None else amax.to(self._dtype)


class HistogramCalibrator(_Calibrator):
    """Finds the range from a histogram by "percentile", "entropy" or "mse".

    The bins are as in torch.histc, or in numpy.histogram if `torch_hist` is False. `grow_method` must be None, because ModelOpt
    deprecated it.
    """

    def __init__(self, num_bits=8, axis=None, unsigned=False, num_bins=2048, grow_method=None, skip_zeros=False, torch_hist=True):
        if grow_method is not None:
            raise _fq.ArgumentError(f"[HistogramCalibrator] grow_method is {grow_method!r}: only None is supported, and the range grows "
                                    "by bins of the same width")
        super().__init__("histogram", axis, num_bits, unsigned, num_bins=num_bins, skip_zeros=skip_zeros,
                         grid="torch" if torch_hist else "numpy")

    def compute_amax(self, method, *, stride=1, start_bin=128, percentile=99.99):
        """Returns amax by the method, or None before the first batch."""
        return self._amax(method=method, stride=stride, start_bin=start_bin, percentile=percentile)


#: Fields of a TensorQuantizer that can be assigned, in addition to its properties.
_FIELDS = ("num_bits", "axis", "unsigned", "narrow_range", "training")


class TensorQuantizer(nn.Module):
    """ModelOpt's TensorQuantizer for integers of up to 16 bits and E4M3, with static ranges.

    `quant_attribute_cfg` is a dict of num_bits, axis, unsigned, narrow_range and calibrator ("max" or "histogram"). The range
    is the buffer `_amax`: it is saved, moved and copied with the module.
    """

    def __init__(self, quant_attribute_cfg=None, if_quant=True, if_calib=False, amax=None):
        super().__init__()
        fields = dict(quant_attribute_cfg or {})
        self.num_bits, self.axis = fields.pop("num_bits", 8), fields.pop("axis", None)
        self.unsigned, self.narrow_range = fields.pop("unsigned", False), fields.pop("narrow_range", False)
        self._method = fields.pop("calibrator", "max")
        if fields:
            raise _fq.ArgumentError(f"[TensorQuantizer] '{next(iter(fields))}' is not a field here: num_bits, axis, unsigned, "
                                    "narrow_range and calibrator are")
        if self._method not in ("max", "histogram"):
            raise _fq.ArgumentError(f"[TensorQuantizer] calibrator is '{self._method}': max and histogram are allowed")
        if not isinstance(self.num_bits, int) and tuple(self.num_bits) != (4, 3):
            raise _fq.ArgumentError(f"[TensorQuantizer] num_bits is {self.num_bits}: use 1 to 16, or (4, 3)")
        self._if_quant, self._if_calib, self._disabled = if_quant, if_calib, False
        self._calibrator = None
        self.register_buffer("_amax", None)
        self.register_buffer("_pre_quant_scale", None)
        if amax is not None:
            self.amax = amax

    def __setattr__(self, name, value):
        if not (name.startswith("_") or name in _FIELDS or hasattr(type(self), name)):
            raise AttributeError(f"[TensorQuantizer] '{name}' is not an attribute: {', '.join(_FIELDS)}, amax and pre_quant_scale can be set")
        super().__setattr__(name, value)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("_amax", "_pre_quant_scale"):
            if getattr(self, name) is None and prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self):
        return {**self.__dict__, "_calibrator": None}  # a copy starts without calibration data

    @property
    def amax(self):
        """The range, or None."""
        return self._amax

    @amax.setter
    def amax(self, value):
        value = torch.as_tensor(value).detach().clone()
        if not bool(((value >= 0) & value.isfinite()).all()):
            raise _fq.ArgumentError("[TensorQuantizer] amax is negative or not finite")
        self._amax = value

    @property
    def pre_quant_scale(self):
        """The factor of the inputs, or None. As in ModelOpt, a disabled quantizer multiplies too."""
        return self._pre_quant_scale

    @pre_quant_scale.setter
    def pre_quant_scale(self, value):
        if value is None:
            raise _fq.ArgumentError("[TensorQuantizer] pre_quant_scale is None: use a number or a tensor")
        value = torch.as_tensor(value).detach().clone()
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise _fq.ArgumentError("[TensorQuantizer] pre_quant_scale is not a finite number: use floats")
        if self._pre_quant_scale is not None and self._pre_quant_scale.shape != value.shape:
            raise _fq.ArgumentError(f"[TensorQuantizer] pre_quant_scale has the shape {list(value.shape)}, and had "
                                    f"{list(self._pre_quant_scale.shape)}: the shape cannot change")
        self._pre_quant_scale = value

    def enable(self):
        self._disabled = False

    def disable(self):
        self._disabled = True

    def enable_quant(self):
        self._if_quant = True

    def disable_quant(self):
        self._if_quant = False

    def enable_calib(self):
        self._if_calib = True

    def disable_calib(self):
        self._if_calib = False

    @property
    def is_enabled(self):
        return not self._disabled

    def _own_calibrator(self):
        if self._calibrator is None:
            kind = MaxCalibrator if self._method == "max" else HistogramCalibrator
            bits = self.num_bits if isinstance(self.num_bits, int) else 8
            self._calibrator = kind(bits, self.axis, self.unsigned)
        return self._calibrator

    def load_calib_amax(self, *args, **kwargs):
        """Sets amax from the calibration data. A histogram takes the method and its options."""
        amax = self._own_calibrator().compute_amax(*args, **kwargs)
        if amax is None:
            raise _fq.ArgumentError("[TensorQuantizer] no calibration data: run batches with enable_calib() first")
        self.amax = amax

    def reset_amax(self):
        """Forgets the range and the calibration data."""
        self._amax, self._calibrator = None, None

    def forward(self, inputs):
        if self._pre_quant_scale is not None:
            inputs = inputs * self._pre_quant_scale
        if self._disabled:
            return inputs
        if not checked(inputs, "TensorQuantizer").is_floating_point() or inputs.numel() == 0:
            raise _fq.ArgumentError(f"[TensorQuantizer] inputs is {inputs.dtype} {list(inputs.shape)}: use floats, at least one")
        if self._if_calib:
            self._own_calibrator().collect(inputs)
        if not self._if_quant:
            return inputs
        amax = self._amax
        if amax is None:  # as ModelOpt: the range of this input
            axes = [] if self.axis is None else [self.axis] if isinstance(self.axis, int) else list(self.axis)
            kept = {a % inputs.dim() for a in axes}
            over = [a for a in range(inputs.dim()) if a not in kept]
            amax = inputs.detach().abs().amax(dim=over, keepdim=bool(kept)) if over else inputs.detach().abs()
        if isinstance(self.num_bits, int):
            return fake_tensor_quant(inputs, amax, None, self.num_bits, self.unsigned, self.narrow_range)
        return scaled_e4m3(inputs, amax)

    def extra_repr(self):
        amax = "None" if self._amax is None else f"[{self._amax.min():.4g}, {self._amax.max():.4g}]"
        scale = "" if self._pre_quant_scale is None else f" pre_quant_scale={self._pre_quant_scale.abs().max():.4g}"
        return f"{self.num_bits} bit axis={self.axis} amax={amax}{scale} quant={self._if_quant and not self._disabled}"
