"""Functions under ModelOpt's names, with a recorded gradient. They are fake quantization: products are torch's."""
import torch

from .. import _fakequant as _fq


class _Graded(torch.autograd.Function):
    """One of the library's functions, whose keyword grad_y gives the gradient of x."""

    @staticmethod
    def forward(ctx, x, function, arguments, options):
        ctx.save_for_backward(x)
        ctx.call = function, arguments, options
        return function(rows(x), *arguments, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        function, arguments, options = ctx.call
        (x,) = ctx.saved_tensors
        x = rows(x)
        same = torch.contiguous_format if x.is_contiguous() else torch.channels_last
        grad_y = grad_y.detach().contiguous(memory_format=same)
        return function(x, *arguments, grad_y=grad_y, **options)[1], None, None, None


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


def _graded(function, x, *arguments, **options):
    return _Graded.apply(x, function, tuple(_without_gradient(a) for a in arguments), options)


def fake_tensor_quant(inputs, amax, bias=None, num_bits=8, unsigned=False, narrow_range=True, pass_through_bwd=False):
    """ModelOpt's fake_tensor_quant: integers, with its bits on a CPU and its straight-through gradient."""
    if not (inputs.requires_grad and torch.is_grad_enabled()):
        return _fq.modelopt.fake_tensor_quant(_without_gradient(inputs), _without_gradient(amax), _without_gradient(bias), num_bits,
                                              unsigned, narrow_range, pass_through_bwd)
    return _graded(_fq.modelopt.fake_tensor_quant, inputs, amax, bias, num_bits=num_bits, unsigned=unsigned,
                   narrow_range=narrow_range, pass_through_bwd=pass_through_bwd)


def scaled_e4m3(inputs, amax=None, bias=None, E=4, M=3, pass_through_bwd=False):
    """ModelOpt's scaled_e4m3: FP8."""
    if not (inputs.requires_grad and torch.is_grad_enabled()):
        return _fq.modelopt.scaled_e4m3(_without_gradient(inputs), _without_gradient(amax), _without_gradient(bias), E, M,
                                        pass_through_bwd)
    return _graded(_fq.modelopt.scaled_e4m3, inputs, amax, bias, E=E, M=M, pass_through_bwd=pass_through_bwd)


def int_cast_ste(inputs, num_bits, unsigned=False, narrow_range=True):
    """Integers without a scale."""
    return _graded(_fq.modelopt.int_cast_ste, inputs, num_bits=num_bits, unsigned=unsigned, narrow_range=narrow_range)


def dynamic_block_quantize(inputs, num_bits, scale_bits, block_size, global_amax=None, triton=False,
                           pass_through_bwd=True):
    """Blocks along the last axis whose scales are found from the input: MX formats and NVFP4."""
    return _graded(_fq.modelopt.dynamic_block_quantize, inputs, num_bits, scale_bits, block_size, global_amax,
                   triton=triton, pass_through_bwd=pass_through_bwd)


def legacy_fake_tensor_quant(inputs, amax, num_bits=8, unsigned=False, narrow_range=True):
    """pytorch-quantization's fake quantization: codes / scale."""
    return _graded(_fq.pytorch_quantization.legacy_fake_tensor_quant, inputs, amax, num_bits=num_bits,
                   unsigned=unsigned, narrow_range=narrow_range)


def fake_affine_tensor_quant(inputs, min_range, max_range, num_bits=8):
    """pytorch-quantization's affine fake quantization."""
    return _graded(_fq.pytorch_quantization.fake_affine_tensor_quant, inputs, min_range, max_range, num_bits=num_bits)
