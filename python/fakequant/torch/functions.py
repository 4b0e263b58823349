"""Functions under ModelOpt's names, with a recorded gradient. They are fake quantization: products are torch's."""
import torch

from .. import _fakequant as _fq


_integers, _floats = _fq.modelopt.fake_tensor_quant, _fq.modelopt.scaled_e4m3


class _Graded(torch.autograd.Function):
    """One of the library's functions, which keeps a bit an element for the way back."""

    @staticmethod
    def forward(ctx, x, function, arguments):
        y, ctx.way_back = function(rows(x), *arguments, True)
        ctx.same = torch.contiguous_format if y.is_contiguous() else torch.channels_last
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        return ctx.way_back(grad_y.detach().contiguous(memory_format=ctx.same)), None, None


def is_usable(device):
    """Whether the library computes there: on the CPU, and on GPUs where it was built for them."""
    return device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < _fq.cuda_device_count())


def checked(x, function):
    """A dense tensor of torch where the library computes. Raises ArgumentError for other arguments."""
    if not isinstance(x, torch.Tensor):
        raise _fq.ArgumentError(f"[{function}] inputs is a {type(x).__name__}: give a tensor of torch; the functions of "
                                "fakequant.modelopt take other arrays")
    if x.layout is not torch.strided:
        raise _fq.ArgumentError(f"[{function}] inputs is {x.layout}: give a dense tensor, as to_dense() makes it")
    if not is_usable(x.device):
        raise _fq.ArgumentError(f"[{function}] inputs is on {x.device}: CPU tensors" + (
            " and those of CUDA GPUs" if _fq.cuda_device_count() else " only, this fakequant has no usable GPU"))
    return x


def rows(x):
    """In a layout that the library reads, which x mostly has."""
    x = x.detach()
    return x if x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)) else x.contiguous()


def _without_gradient(value):
    """The same values where nothing is recorded; a tensor that needs no copy as it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach() if value.requires_grad else value
        return value if value.is_contiguous() else rows(value)
    return value


def _graded(function, x, *arguments):
    """By place, which takes half the time of names; `grad_y` is each function's last argument."""
    return _Graded.apply(checked(x, function.__name__), function, [_without_gradient(a) for a in arguments])


def _maybe_recorded(function, inputs, amax, bias, *rest):
    """As it is where the library takes all of it, which most calls are: a look at each argument takes as long as the call."""
    if type(inputs) is torch.Tensor and not inputs.requires_grad:
        try:
            return function(inputs, amax, bias, *rest)
        except _fq.ArgumentError:
            pass  # other strides, a range that is a parameter, or what is refused below
    if checked(inputs, function.__name__).requires_grad and torch.is_grad_enabled():
        return _graded(function, inputs, amax, bias, *rest)
    return function(_without_gradient(inputs), _without_gradient(amax), _without_gradient(bias), *rest)


def fake_tensor_quant(inputs, amax, bias=None, num_bits=8, unsigned=False, narrow_range=True, trt_high_precision_dtype=None,
                      pass_through_bwd=False, block_size=None, axis=None):
    """ModelOpt's fake_tensor_quant: integers, with its bits on a CPU and its straight-through gradient.

    As in ModelOpt, trt_high_precision_dtype, block_size and axis concern its ONNX export alone and change no number.
    """
    return _maybe_recorded(_integers, inputs, amax, bias, num_bits, unsigned, narrow_range, pass_through_bwd)


def scaled_e4m3(inputs, amax=None, bias=None, E=4, M=3, trt_high_precision_dtype=None, pass_through_bwd=False):
    """ModelOpt's scaled_e4m3: FP8. trt_high_precision_dtype changes no number."""
    return _maybe_recorded(_floats, inputs, amax, bias, E, M, pass_through_bwd)


def int_cast_ste(x, num_bits, unsigned=False, narrow_range=True):
    """Integers without a scale."""
    return _graded(_fq.modelopt.int_cast_ste, x, num_bits, unsigned, narrow_range)


def dynamic_block_quant(inputs, block_size, amax, bias, num_bits, scale_bits, trt_high_precision_dtype=None,
                        onnx_quantizer_type="dynamic", pass_through_bwd=True):
    """ModelOpt's dynamic_block_quant: blocks along the last axis whose scales are found from the input, MX formats and NVFP4.

    `amax` is the range of the whole tensor, or None. The bits are those of ModelOpt's CUDA extension. trt_high_precision_dtype
    and onnx_quantizer_type concern its ONNX export alone and change no number.
    """
    if bias is not None:
        raise _fq.ArgumentError("[dynamic_block_quant] bias is not supported, and ModelOpt does not read it: give None")
    if isinstance(amax, torch.Tensor) and amax.numel() > 1:
        amax = amax.detach().amax()  # as ModelOpt
    return _graded(_fq.modelopt.dynamic_block_quantize, inputs, num_bits, scale_bits, block_size, amax, False, pass_through_bwd)


def legacy_fake_tensor_quant(inputs, amax, num_bits=8, unsigned=False, narrow_range=True):
    """pytorch-quantization's fake quantization: codes / scale."""
    return _graded(_fq.pytorch_quantization.legacy_fake_tensor_quant, inputs, amax, num_bits, unsigned, narrow_range)


def fake_affine_tensor_quant(inputs, min_range, max_range, num_bits=8):
    """pytorch-quantization's affine fake quantization."""
    return _graded(_fq.pytorch_quantization.fake_affine_tensor_quant, inputs, min_range, max_range, num_bits)
