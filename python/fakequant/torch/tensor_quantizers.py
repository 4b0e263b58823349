"""Quantizers and calibrators under ModelOpt's names."""
import torch
from torch import nn

from .. import _fakequant as _fq
from .functions import checked, fake_tensor_quant, rows, scaled_e4m3


class _Calibrator:
    def __init__(self, method, axis, num_bits, unsigned, **options):
        axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
        self._calibrator = _fq.make_calibrator(method, axis=axes, **options)
        self._num_bits, self._unsigned = num_bits, unsigned

    def collect(self, x):
        """Takes a batch into account. Integers count as float32."""
        x = rows(checked(x, "collect"))
        if x.dtype is torch.bool or x.is_complex():
            raise _fq.ArgumentError(f"[collect] x is {x.dtype}: give floats or integers")
        self._calibrator.collect(x if x.is_floating_point() else x.float())
        self._device = x.device

    def reset(self):
        """Forgets every batch."""
        self._calibrator.reset()

    def _amax(self, **options):
        if self._calibrator.empty:
            return None
        amax = self._calibrator.compute_amax(num_bits=self._num_bits, unsigned=self._unsigned, **options)
        if isinstance(amax, _fq.Tensor):  # bfloat16, which numpy has not
            return torch.from_numpy(amax.to("float32").numpy().copy()).to(self._device, torch.bfloat16)
        return torch.from_numpy(amax.copy()).to(self._device)


class MaxCalibrator(_Calibrator):
    """The largest magnitude of all batches, for each index of `axis`. With `track_amax` the ranges of the batches are in `amaxs`."""

    def __init__(self, num_bits=8, axis=None, unsigned=False, track_amax=False):
        super().__init__("max", axis, num_bits, unsigned)
        self._axis, self._track_amax, self._dtype = axis, bool(track_amax), None
        if self._track_amax:
            self._amaxs = []

    @property
    def amaxs(self):
        """The range of each batch, numpy arrays; with track_amax only."""
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
        """amax, or None before the first batch; of the type of the batches."""
        amax = self._amax()
        return amax if amax is None or self._dtype is None else amax.to(self._dtype)


class HistogramCalibrator(_Calibrator):
    """A histogram, read by "percentile", "entropy" or "mse".

    The bins are those of torch.histc, or of numpy.histogram without `torch_hist`. `grow_method` must be None, as ModelOpt
    deprecated it.
    """

    def __init__(self, num_bits=8, axis=None, unsigned=False, num_bins=2048, grow_method=None, skip_zeros=False, torch_hist=True):
        if grow_method is not None:
            raise _fq.ArgumentError(f"[HistogramCalibrator] grow_method is {grow_method!r}: only None is supported, the range grows "
                                    "by bins of the same width")
        super().__init__("histogram", axis, num_bits, unsigned, num_bins=num_bins, skip_zeros=skip_zeros,
                         grid="torch" if torch_hist else "numpy")

    def compute_amax(self, method, *, stride=1, start_bin=128, percentile=99.99):
        """amax by that method, or None before the first batch."""
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
            raise _fq.ArgumentError(f"[TensorQuantizer] '{next(iter(fields))}' is no field here: num_bits, axis, unsigned, "
                                    "narrow_range and calibrator are")
        if self._method not in ("max", "histogram"):
            raise _fq.ArgumentError(f"[TensorQuantizer] calibrator is '{self._method}': max and histogram are allowed")
        if not isinstance(self.num_bits, int) and tuple(self.num_bits) != (4, 3):
            raise _fq.ArgumentError(f"[TensorQuantizer] num_bits is {self.num_bits}: give 1 to 16, or (4, 3)")
        self._if_quant, self._if_calib, self._disabled = if_quant, if_calib, False
        self._calibrator = None
        self.register_buffer("_amax", None)
        self.register_buffer("_pre_quant_scale", None)
        if amax is not None:
            self.amax = amax

    def __setattr__(self, name, value):
        if not (name.startswith("_") or name in _FIELDS or hasattr(type(self), name)):
            raise AttributeError(f"[TensorQuantizer] '{name}' is no attribute: {', '.join(_FIELDS)}, amax and pre_quant_scale can be set")
        super().__setattr__(name, value)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("_amax", "_pre_quant_scale"):
            if getattr(self, name) is None and prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self):
        return {**self.__dict__, "_calibrator": None}  # what was collected stays with the original

    @property
    def amax(self):
        """The range, None before there is one."""
        return self._amax

    @amax.setter
    def amax(self, value):
        value = torch.as_tensor(value).detach().clone()
        if not bool(((value >= 0) & value.isfinite()).all()):
            raise _fq.ArgumentError("[TensorQuantizer] amax is negative or not finite")
        self._amax = value

    @property
    def pre_quant_scale(self):
        """Factor of the inputs, or None. As in ModelOpt a disabled quantizer multiplies too."""
        return self._pre_quant_scale

    @pre_quant_scale.setter
    def pre_quant_scale(self, value):
        if value is None:
            raise _fq.ArgumentError("[TensorQuantizer] pre_quant_scale is None: give a number or a tensor")
        value = torch.as_tensor(value).detach().clone()
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise _fq.ArgumentError("[TensorQuantizer] pre_quant_scale is not a finite number: give floats")
        if self._pre_quant_scale is not None and self._pre_quant_scale.shape != value.shape:
            raise _fq.ArgumentError(f"[TensorQuantizer] pre_quant_scale has the shape {list(value.shape)}, and had "
                                    f"{list(self._pre_quant_scale.shape)}: a shape stays")
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
        """Sets amax to what was collected; a histogram takes the method and its options."""
        amax = self._own_calibrator().compute_amax(*args, **kwargs)
        if amax is None:
            raise _fq.ArgumentError("[TensorQuantizer] nothing was collected: run data with enable_calib() first")
        self.amax = amax

    def reset_amax(self):
        """Forgets the range and what was collected."""
        self._amax, self._calibrator = None, None

    def forward(self, inputs):
        if self._pre_quant_scale is not None:
            inputs = inputs * self._pre_quant_scale
        if self._disabled:
            return inputs
        if not checked(inputs, "TensorQuantizer").is_floating_point() or inputs.numel() == 0:
            raise _fq.ArgumentError(f"[TensorQuantizer] inputs is {inputs.dtype} {list(inputs.shape)}: give floats, at least one")
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
