"""Modules whose forward torch.fx cannot read: what they are called with, and their calls of attention led to modules."""
import threading
from collections import OrderedDict

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .. import _fakequant as _fq
from .layers import has_weight


def _described(value):
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


class Calls:
    """What a model of an example gives its modules: `inputs` of each that was called with tensors alone, `arguments` of each, and
    the shapes of queries, keys and values with the scale of each call of attention in a module's own forward. `first` and `last` are
    the layers with a weight that were called first and last."""

    def __init__(self, model, args, kwargs):
        self.inputs, self.arguments, self.attention, self._open = {}, {}, {}, []
        self.first = self.last = None  # layers with a weight
        modes, fast, hooks = {module: module.training for module in model.modules()}, torch.backends.mha.get_fastpath_enabled(), []
        try:
            torch.backends.mha.set_fastpath_enabled(False)  # which passes by the modules
            for module in model.modules():
                hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.append(module.register_forward_hook(self._leave, always_call=True))
            with torch.no_grad(), _Watch(self):
                model.eval()(*args, **kwargs)
        except _fq.Error:
            raise
        except Exception as error:  # of the model's own code
            given = ", ".join(_described(value) for value in (*args, *kwargs.values()))
            raise _fq.ArgumentError(f"[quantize] {type(model).__name__} does not take example_input, {given}: "
                                    f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}") from error
        finally:
            for hook in hooks:
                hook.remove()
            torch.backends.mha.set_fastpath_enabled(fast)
            for module, mode in modes.items():
                module.training = mode

    def _enter(self, module, args, kwargs):
        self._open.append(module)
        self.arguments.setdefault(module, (args, kwargs))
        if has_weight(module):
            self.first, self.last = self.first or module, module
        if not kwargs and args and all(isinstance(value, torch.Tensor) for value in args):
            self.inputs.setdefault(module, args)

    def _leave(self, module, args, output):
        if self._open and self._open[-1] is module:
            self._open.pop()

    def saw_attention(self, shapes, scale):
        if self._open:
            self.attention.setdefault(self._open[-1], []).append((shapes, scale))


class _Watch(TorchFunctionMode):
    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value"), args)) | kwargs
            self._calls.saw_attention([list(given[name].shape) for name in ("query", "key", "value")], given.get("scale"))
        return function(*args, **kwargs)


class _Routes(TorchFunctionMode):
    """Calls of attention, in their order, as calls of modules."""

    def __init__(self, module):
        super().__init__()
        self.module, self._left = module, iter(module.attends)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        attend = next(self._left, None)
        if attend is None:
            raise _fq.ArgumentError(f"[attention] {type(self.module).__name__} calls it more often than with example_input")
        return attend(*args, **(kwargs or {}))


class _Open(threading.local):
    def __init__(self):
        self.routes = []


_open = _Open()


def _enter(module, args):
    _open.routes.append(_Routes(module).__enter__())


def _leave(module, args, output):
    if _open.routes and _open.routes[-1].module is module:
        _open.routes.pop().__exit__(None, None, None)


def lead(module, attends):
    """Puts `attends` in place of the calls of attention in the forward of `module`, whose hooks are its own from now on."""
    module._modules["attends"] = nn.ModuleList(attends)
    for name in ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called"):
        setattr(module, name, OrderedDict(getattr(module, name)))
    module.register_forward_pre_hook(_enter)
    module.register_forward_hook(_leave, always_call=True)
