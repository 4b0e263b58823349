"""Records the calls of modules when a model runs on the example."""
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ... import _fakequant as _fq
from ..ops.layers import has_weight
from ..ops.products import find_product


class ExampleCalls:
    """Calls of modules when the model runs on the example.

    `arguments` is {module: (args, kwargs)} of the first call, `inputs` is {module: args} of the first call with tensors only. `attention`
    is {module: list of (shapes of queries, keys and values, scale)} of the attention calls in its own forward. `products` is {module:
    {(parameter, expert): whether the weight is [in, out]}} of its products with own parameters. `first` and `last` are the layers with a
    weight that were called first and last.
    """

    def __init__(self, model, args, kwargs):
        self.inputs, self.arguments, self.attention, self.products, self._running = {}, {}, {}, {}, []
        self.first = self.last = None
        modes, fast, hooks = {module: module.training for module in model.modules()}, torch.backends.mha.get_fastpath_enabled(), []
        try:
            torch.backends.mha.set_fastpath_enabled(False)  # the fast path does not call the modules
            for module in model.modules():
                hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.append(module.register_forward_hook(self._leave, always_call=True))
            with torch.no_grad(), _CallObserver(self):
                model.eval()(*args, **kwargs)
        except _fq.Error:
            raise
        except Exception as error:  # of the model's own code
            given = ", ".join(_describe(value) for value in (*args, *kwargs.values()))
            message = (str(error).strip() or "no message").splitlines()[0]
            raise _fq.ArgumentError(f"[quantize] {type(model).__name__} does not take example_input, {given}: {type(error).__name__}: "
                                    f"{message}") from error
        finally:
            for hook in hooks:
                hook.remove()
            torch.backends.mha.set_fastpath_enabled(fast)
            for module, mode in modes.items():
                module.training = mode

    def _enter(self, module, args, kwargs):
        self._running.append(module)
        self.arguments.setdefault(module, (args, kwargs))
        if has_weight(module):
            self.first, self.last = self.first or module, module
        if not kwargs and args and all(isinstance(value, torch.Tensor) for value in args):
            self.inputs.setdefault(module, args)

    def _leave(self, module, args, output):
        if self._running and self._running[-1] is module:
            self._running.pop()

    def add_attention(self, shapes, scale):
        if self._running:
            self.attention.setdefault(self._running[-1], []).append((shapes, scale))

    def add_product(self, function, args, kwargs):
        found = find_product(self._running[-1], function, args, kwargs) if self._running else None
        if found is not None:
            name, expert, is_swapped = found
            self.products.setdefault(self._running[-1], {})[name, expert] = is_swapped


class _CallObserver(TorchFunctionMode):
    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value"), args)) | kwargs
            self._calls.add_attention([list(given[name].shape) for name in ("query", "key", "value")], given.get("scale"))
        else:
            self._calls.add_product(function, args, kwargs)
        return function(*args, **kwargs)


def _describe(value):
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
