"""Passes of torch's autograd through a network of the library."""
import torch

from .functions import rows


class Pending:
    """Alive while a forward pass is to be gone back through."""


class Pass(torch.autograd.Function):
    """Forward on codes; backward as the library records it, once. `tensors` are `count` inputs and the parameters."""

    @staticmethod
    def forward(ctx, codes, count, *tensors):
        inputs, sources = tensors[:count], tensors[count:]
        y, ctx.recording = codes.record(inputs, sources, ctx.needs_input_grad[2:2 + count])
        ctx.names, ctx.pending = codes.parameter_names, Pending()
        codes.shared.pending.add(ctx.pending)
        ctx.save_for_backward(*sources)  # torch refuses a backward pass when one was written to
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        sources = ctx.saved_tensors
        ctx.pending = None
        of_inputs, gradients = ctx.recording.backward(rows(grad_y))
        of_inputs = of_inputs if isinstance(of_inputs, list) else [of_inputs]
        own = [_shaped(gradients[name], source) for name, source in zip(ctx.names, sources)]
        return None, None, *of_inputs, *own, *[None] * (len(sources) - len(own))


def _shaped(gradient, source):
    return gradient if gradient is None or gradient.shape == source.shape else gradient.reshape(source.shape)
