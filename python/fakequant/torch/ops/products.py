"""Modules that replace products with parameters in forwards that torch.fx cannot trace. Experts of transformers have such products."""
import torch
from torch import nn
from torch.nn import functional

from ..capture.interpreter import Step, ValueRef
from ..capture.nodes import join_path
from ..parts import LoweredModule
from .refs import Expression, TensorRef

_ALL, _EACH = -1, -2  # experts of a call: rows of all experts in order, or a matrix of rows for each expert
_MATMULS = {torch.matmul, torch.mm, torch.bmm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.bmm, torch.Tensor.__matmul__}
_GROUPED = {getattr(module, name) for module, name in ((functional, "grouped_mm"), (torch, "_grouped_mm")) if hasattr(module, name)}


def find_product(module, function, args, kwargs):
    """Returns (parameter name, expert or None, whether the weight is [in, out]) of a call of torch whose weight is a parameter of `module`.

    The weight is a matrix, one matrix of a parameter [experts, .., ..], or all of them. Returns None for other calls.
    """
    if function is not functional.linear and function not in _GROUPED and function not in _MATMULS:
        return None
    weight = args[1] if len(args) > 1 else kwargs.get("weight", kwargs.get("mat_b"))
    if not args or not isinstance(weight, torch.Tensor) or not args[0].is_floating_point() or args[0].dim() < 2:
        return None
    for name, parameter in module._parameters.items():
        if parameter is not None and parameter.dim() in (2, 3) and parameter.numel() and _shares_memory(weight, parameter):
            return _view_of(name, parameter, weight, function)
    return None


def _shares_memory(a, b):
    return a is b or a.device == b.device and a.dtype == b.dtype and _address(a) == _address(b)


def _address(x):
    return x.untyped_storage()._cdata if torch.compiler.is_exporting() else x.untyped_storage().data_ptr()


def _view_of(name, parameter, weight, function):
    rest, own = parameter.stride()[-2:], weight.stride()[-2:]
    is_swapped = own == rest[::-1] and weight.shape[-2:] == parameter.shape[-2:][::-1]
    if not is_swapped and (own != rest or weight.shape[-2:] != parameter.shape[-2:]):
        return None
    offset = weight.storage_offset() - parameter.storage_offset()
    if function is not functional.linear:  # its weights are [in, out]
        is_swapped = not is_swapped
    if weight.dim() == 3:
        is_whole = parameter.dim() == 3 and offset == 0 and len(weight) == len(parameter)
        return (name, _ALL if function in _GROUPED else _EACH, is_swapped) if is_whole and function is not functional.linear else None
    if weight.dim() != 2:
        return None
    if parameter.dim() == 2:
        return (name, None, is_swapped) if offset == 0 else None
    expert, left = divmod(offset, parameter.stride(0))
    return (name, expert, is_swapped) if left == 0 and 0 <= expert < len(parameter) else None


class Product(LoweredModule):
    """A linear layer whose weight is a matrix of a parameter. `expert` is its index in a parameter of three axes, or None."""

    def __init__(self, module, name, expert, is_swapped, config, path):
        matrix = getattr(module, name)
        matrix = matrix if expert is None else matrix[expert]
        out, own = matrix.shape[::-1] if is_swapped else matrix.shape
        layer = join_path(path, "" if name == "weight" and expert is None else f"{name}_{0 if expert is None else expert}") or name
        node = {"name": layer, "type": "linear", "options": {"out_features": out, "in_features": own, "bias": False}, "inputs": ["input"]}
        expression = None
        if expert is not None:
            expression = Expression((Step("matrix", "call_function", ("operator", "getitem"), (ValueRef("base"), expert), {}),), "base", {}, {})
        ref = TensorRef(module, name, transposed=is_swapped, expression=expression)
        super().__init__([node], {f"{layer}.weight": ref}, [own], 0, config)


class Products(nn.Module):
    """Replaces the products of a module with its parameters. `found` is {(parameter name, expert or None): whether the weight is [in, out]}.

    Experts are calibrated with the inputs of all experts, because the data may not reach each of them.
    """

    def __init__(self, module, found, config, path):
        super().__init__()
        self.floats, self._token_mask, self._recorded = {}, None, None
        self.name, self.computes_every_expert = path.rpartition(".")[2], False
        self._keys = [key for name, expert in found for key in _experts(module, name, expert)]
        self._keys = list(dict.fromkeys(self._keys))
        swapped = {name: is_swapped for (name, _), is_swapped in found.items()}
        for name, expert in self._keys:
            self.add_module(_child(name, expert), Product(module, name, expert, swapped[name], config, path))

    def lowered_modules(self):
        return {_child(*key): getattr(self, _child(*key)) for key in self._keys}

    def are_on_codes(self):
        return any(lowered.states for lowered in self.lowered_modules().values())

    def has_experts(self):
        return any(expert is not None for _, expert in self._keys)

    def every_expert(self, module, hidden_states, top_k_index, top_k_weights):
        """Computes every expert for every token, because a graph cannot choose products by values. Returns the sum by weights [tokens, features].
        An expert that a token did not choose has weight 0. Arguments as for `ExpertsInterface` of transformers."""
        total, first = 0, "gate_up_proj" if module.has_gate else "up_proj"
        for expert in range(len(module.down_proj)):
            x = self._with_bias(module, first, expert, hidden_states)
            x = module._apply_gate(x) if module.has_gate else module.act_fn(x)
            x = self._with_bias(module, "down_proj", expert, x)
            if module.has_post_expert_norm:
                x = module.post_expert_norm(x)
            total = total + x * (top_k_weights * (top_k_index == expert)).sum(-1, keepdim=True)
        return total.to(hidden_states.dtype)

    def _with_bias(self, module, name, expert, x):
        if (name, expert) in self._keys:
            y = self._product(name, expert, x)
        else:
            weight = getattr(module, name)[expert]
            y = x @ weight if module.is_transposed else functional.linear(x, weight)
        return y + getattr(module, f"{name}_bias")[expert] if module.has_bias else y

    def record_inputs(self):
        """Computes in floats until `stop_recording`. Returns {name: list of (inputs of a call, mask of positions)}, which grows with each
        call."""
        self._recorded = {name: [] for name, _ in self._keys}
        return {_child(name, expert): self._recorded[name] for name, expert in self._keys}

    def stop_recording(self):
        self._recorded = None

    def call(self, module, function, args, kwargs):
        """Returns the result of a call of torch, or None if it is no product that was called with the example."""
        found = find_product(module, function, args, kwargs)
        if found is None:
            return None
        name, expert, _ = found
        if not any(key[0] == name for key in self._keys):
            return None
        x = args[0]
        if self._recorded is not None:
            if x.numel():
                self._recorded[name].append(([x.detach().float().flatten(0, -2)], None))
            return None
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        if expert == _EACH:
            return torch.stack([self._product(name, i, rows) for i, rows in enumerate(x)]) if x.dim() == 3 else None
        if expert == _ALL:
            return self._grouped(name, x, kwargs.get("offs", args[2] if len(args) > 2 else None))
        y = self._product(name, expert, x)
        return y if bias is None else y + bias

    def _product(self, name, expert, x):
        lowered = getattr(self, _child(name, expert))
        if not x.numel():
            return functional.linear(x, next(iter(lowered.refs.values())).get())
        return lowered(x.flatten(0, -2)).view(*x.shape[:-1], -1).to(x.dtype)

    def _grouped(self, name, x, offsets):
        """Returns the rows of all experts. `offsets` has the end of the rows of each expert; the rest of the rows is zero."""
        ends = offsets.tolist()
        parts = [self._product(name, expert, x[begin:end]) for expert, (begin, end) in enumerate(zip([0, *ends], ends)) if end > begin]
        width = self._product(name, 0, x[:0]).shape[-1]
        rest = x.new_zeros(len(x) - ends[-1], width)
        return torch.cat([*parts, rest])


def _experts(module, name, expert):
    """Returns the keys of all matrices of a parameter."""
    return [(name, i) for i in range(len(getattr(module, name)))] if expert is not None else [(name, None)]


def _child(name, expert):
    return name if expert is None else f"{name}_{expert}"
