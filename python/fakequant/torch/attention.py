"""Attention calls that are not in a subgraph: modules that replace scaled_dot_product_attention and nn.MultiheadAttention."""
import threading
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .. import _fakequant as _fq
from .capture.nodes import argument, node_shape
from .ops.layers import module_layer, tensor_refs
from .ops.refs import additive_mask, require
from .parts import LoweredModule
from .tensors import as_float32, concatenate_masks, flatten_inputs


class LoweredAttention(LoweredModule):
    """One attention layer of the library. It takes several inputs of any lengths. Calibration has the lengths of `shapes`.

    `layer` is (type, options). `shapes` are the shapes of one sample of each input and of the mask. `reads` are the positions of the inputs
    that the layer reads. `name` is the module path of the layer in the whole model.
    """

    def __init__(self, layer, shapes, reads, refs, config, name):
        layer = {"name": name, "type": layer[0], "options": layer[1], "inputs": [f"input_{i}" for i in reads]}
        nodes, size = _with_inputs(layer, shapes)
        self._shapes, self._name = shapes, name
        self._unmasked, self._reads_one = 2 if refs else 3, reads[0] == reads[1]
        super().__init__(nodes, {f"{name}.{parameter}": ref for parameter, ref in refs.items()}, [size], 0, config,
                         old_names={"attention": name})

    def _recorded(self, inputs, wants_gradient):
        return self._network.record_layer(self._name, inputs, wants_gradient)

    def _evaluated(self, inputs):
        return self._network.run_layer(self._name, inputs)

    def output_shape(self, shapes):
        """Returns the shape of the values that attention returns: the width of queries, or for heads [N, H, L, D] the width of values."""
        samples = [self.fixed_sizes(shape[1:]) for shape in shapes]
        return [shapes[0][0], *samples[0][:-1], samples[2 if len(samples[0]) == 3 else 0][-1]]

    def for_file(self, shapes):
        """Returns (part for a file, False). `shapes` are the shapes of all inputs, the mask [N, H or 1, L, S] included."""
        samples = [list(shape[1:]) for shape in shapes]
        reads = [f"input_{i}" for i in range(len(samples))]
        if self._reads_one and len(samples) > 1:  # the second input is the first one again, and has its quantizer
            reads[1] = reads[0]
        nodes, size = _with_inputs(self.nodes[-1] | {"inputs": reads}, samples)
        return self._with(nodes=nodes, _shapes=samples, _sample_shape=[size]), False

    def file_inputs(self, inputs):
        return [*inputs[:self._unmasked], *(_graph_mask(mask, inputs[:self._unmasked]) for mask in inputs[self._unmasked:])]

    def mask_sizes(self):
        """Returns the numbers of queries and keys of the mask in the example."""
        return self._shapes[-1][1:]

    def _samples(self, calls):
        return torch.cat([flatten_inputs(inputs, self._shapes) for inputs in calls]).contiguous()

    def _sample_mask(self, calls, masks):
        for inputs, mask in zip(calls, masks):
            if mask is not None and any(list(x.shape[1:]) != list(shape) for x, shape in zip(inputs, self._shapes)):
                raise _fq.ArgumentError("[calibrate] mask: attention on codes is called with other lengths than in example_input. "
                                        "Calibrate with samples of its length")
        return concatenate_masks(calls, masks)


def _with_inputs(layer, shapes):
    """Returns (nodes of a layer and its inputs, number of elements of all inputs). `shapes` are the shapes of one sample of each input."""
    nodes, begin = [], 0
    for i, shape in enumerate(shapes):
        nodes.append({"name": f"input_{i}", "type": "input_part", "options": {"begin": begin, "shape": shape, "name": f"input_{i}"},
                      "inputs": ["input"]})
        begin += torch.Size(shape).numel()
    return [*nodes, layer], begin


class Attention(nn.Module):
    """Replaces one attention call of torch. Torch computes a call that the library does not support if all quantizers of attention are
    off, else the call is an error."""

    def __init__(self, lowered):
        super().__init__()
        self.attend, self.recorded, self.floats, self._token_mask = lowered, None, {}, None

    def lowered_modules(self):
        return {"attend": self.attend}

    def record_inputs(self):
        """Computes in floats until `stop_recording`. Returns {name: list of (inputs of a call, mask of positions)}, which grows with each
        call."""
        self.recorded = []
        return {"attend": self.recorded}

    def stop_recording(self):
        self.recorded = None

    def _as_parameters(self, *tensors):
        """Returns the inputs in the type of the parameters during calibration, when torch computes. The same tensor is converted once."""
        types = self.attend.parameter_types() if self.recorded is not None else ()
        if len(types) != 1:
            return tensors
        converted = {id(x): x.to(*types) if x.is_floating_point() else x for x in tensors if x is not None}
        return [converted.get(id(x)) for x in tensors]

    def _call(self, inputs, mask, unsupported, call_torch):
        """Runs the library, or torch during calibration and if `unsupported` has a reason."""
        if self.recorded is not None:
            if not unsupported:
                self.recorded.append(([as_float32(x.detach()).clone() for x in inputs], self._token_mask))
            return call_torch()
        # Without quantizers torch computes in graphs, and in 16 bits, where its attention and the library's differ by rounding.
        if not self.attend.states and (torch.compiler.is_compiling() or inputs[0].dtype != torch.float32):
            return call_torch()
        if not unsupported:
            return self.attend(*inputs, *([] if mask is None else [_graph_mask(mask, inputs) if torch.compiler.is_exporting() else mask]))
        if torch.compiler.is_compiling() or any(row["enabled"] for row in self.attend.network.quantizers()):
            raise _fq.ArgumentError(f"[attention] {unsupported}, which quantized attention does not support: change the call, or switch the "
                                    "quantizers of attention off")
        return call_torch()


class DotProduct(Attention):
    """Replaces scaled_dot_product_attention. `shapes` are the shapes of queries, keys and values in the example."""

    def __init__(self, shapes, scale, config, name):
        layer = "scaled_dot_product_attention", {} if scale is None else {"scale": scale}
        super().__init__(LoweredAttention(layer, [_with_heads(shape)[1:] for shape in shapes], range(3), {}, config, name))
        self._scale = scale

    def forward(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        inputs, mask = [query, key, value], attn_mask
        if is_causal and mask is None and query.dim() > 2:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        unsupported = ("dropout_p is above 0" if dropout_p else
                       f"scale is {scale}, and was {self._scale} in example_input" if scale != self._scale else
                       _unsupported_inputs(inputs, mask, enable_gqa))
        call_torch = lambda: functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,  # noqa: E731
                                                                     scale=scale, enable_gqa=enable_gqa)
        if unsupported:
            return self._call(inputs, None, unsupported, call_torch)
        with_heads = [x if x.dim() == 4 else x.unsqueeze(1) for x in inputs]
        if mask is not None:
            mask = mask.to(torch.uint8) if mask.dtype == torch.bool else mask
            mask = mask.unsqueeze(1) if query.dim() == 3 and mask.dim() == 3 else mask
        y = self._call(with_heads, mask, "", call_torch)
        return y if y.dim() == query.dim() else y.squeeze(1)


def dot_product(shapes, scale, config, name):
    """Returns a DotProduct for the layer `name`. Raises Unsupported."""
    require(len(shapes) == 3 and all(len(shape) in (3, 4) for shape in shapes), "attention on inputs that do not have three or four axes")
    return DotProduct(shapes, scale, config, name)


def _with_heads(shape):
    return list(shape) if len(shape) == 4 else [shape[0], 1, *shape[1:]]


def _unsupported_inputs(inputs, mask, grouped):
    """Returns why the library does not support the inputs, or ""."""
    query, key, _ = inputs
    if any(x.dim() not in (3, 4) or x.dim() != query.dim() or x.shape[0] != query.shape[0] for x in inputs):
        return f"inputs are {', '.join(str(list(x.shape)) for x in inputs)}"
    if not grouped and query.dim() == 4 and query.shape[1] != key.shape[1]:
        return f"{query.shape[1]} heads of queries and {key.shape[1]} of keys without enable_gqa"
    return "the mask takes a gradient" if mask is not None and mask.requires_grad else ""


class MultiheadCall(Attention):
    """Replaces a call of nn.MultiheadAttention. It reads the parameters of the module, which is not its child.

    `weights_read` says whether the model may read the attention weights, which are None here.
    """

    def __init__(self, module, shapes, config, name, weights_read):
        mask = [1, shapes[0][0], shapes[-1][0]]
        reads = [0, len(shapes) - 1, len(shapes)]
        super().__init__(LoweredAttention(module_layer(module), [*shapes, mask], reads, tensor_refs(module), config, name))
        self._has_keys, self.weights_read = len(shapes) > 1, weights_read
        self.set_module(module)

    def set_module(self, module):
        self._module = (module,)  # a tuple, so that torch does not register it

    @property
    def module(self):
        return self._module[0]

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
                is_causal=False):
        module = self.module
        query, key, value, key_padding_mask, attn_mask = self._as_parameters(query, key, value, key_padding_mask, attn_mask)
        call_torch = lambda: (nn.MultiheadAttention.forward(  # noqa: E731
            module, query, key, value, key_padding_mask, False, attn_mask, average_attn_weights, is_causal)[0])
        is_one = key is value and not self._has_keys and query is key
        unsupported = ("its inputs have no batch axis" if query.dim() != 3 else
                       "keys and values are two inputs" if key is not value else
                       "queries and keys are two inputs, and were one in example_input" if query is not key and not self._has_keys else
                       "scores have dropout" if module.dropout and self.training else "")
        masks = [m for m in (key_padding_mask, attn_mask) if m is not None]
        unsupported = unsupported or ("a mask takes a gradient" if any(m.requires_grad for m in masks) else "")
        if unsupported:
            return self._call([query], None, unsupported, call_torch), None
        inputs = [query] if is_one else [query, key]
        inputs = inputs if module.batch_first else [x.transpose(0, 1) for x in inputs]
        mask = _join_masks(key_padding_mask, attn_mask, inputs[0].shape[0], module.num_heads)
        if self.recorded is not None:
            sizes, known = [inputs[0].shape[1], inputs[-1].shape[1]], self.attend.mask_sizes()
            if mask is not None and sizes != known:
                raise _fq.ArgumentError(f"[calibrate] attention with a mask is called with {sizes} queries and keys, and in "
                                        f"example_input with {known}: calibrate with samples of its length")
            return self._call([*inputs, _full_mask(mask, inputs[0], inputs[-1])], None, "", call_torch), None
        y = self._call(inputs * 2 if is_one and masks else inputs, mask, "", call_torch)
        return y if module.batch_first else y.transpose(0, 1), None


def _join_masks(padding, mask, samples, heads):
    """Returns one mask for key_padding_mask [N, S] and attn_mask [L, S] or [N * heads, L, S]. True means hidden in both."""
    masks = [] if padding is None else [padding[:, None, None, :]]
    if mask is not None:
        masks.append(mask if mask.dim() == 2 else mask.reshape(samples, heads, *mask.shape[1:]))
    if not masks:
        return None
    if all(m.dtype == torch.bool for m in masks):
        return (~(masks[0] if len(masks) == 1 else masks[0] | masks[1])).to(torch.uint8)
    masks = [additive_mask(~m) if m.dtype == torch.bool else m for m in masks]
    return masks[0] if len(masks) == 1 else masks[0] + masks[1]


def _graph_mask(mask, inputs):
    """Returns an additive mask [N, H or 1, L, S], as files have it, for queries and keys [N, L, width] or [N, H, L, D]."""
    numbers = additive_mask(mask.bool()) if mask.dtype == torch.uint8 else mask
    numbers = numbers.reshape(*[1] * (4 - numbers.dim()), *numbers.shape)
    return numbers.expand(inputs[0].shape[0], -1, inputs[0].shape[-2], inputs[-1].shape[-2])


def _full_mask(mask, queries, keys):
    """Returns an additive mask [N, 1, L, S], the union of the masks of all heads."""
    shape = len(queries), 1, queries.shape[1], keys.shape[1]
    if mask is None:
        return torch.zeros(shape, dtype=torch.float32, device=queries.device)
    numbers = additive_mask(mask.bool()) if mask.dtype == torch.uint8 else mask
    heads = numbers.expand(len(queries), -1, *shape[2:]) if numbers.dim() == 4 else numbers.expand(shape)
    return heads.amax(1, keepdim=True)


class QuantizedMultihead(nn.MultiheadAttention):
    """nn.MultiheadAttention with its own parameters, which the library runs. The attention weights are None."""

    def forward(self, *args, **kwargs):
        return self.attends(*args, **kwargs)


def quantized_multihead(module, args, kwargs, config, name):
    """Returns a QuantizedMultihead with the parameters of `module`. `args` and `kwargs` are the arguments of its example call.

    Raises Unsupported.
    """
    call = dict(zip(("query", "key", "value", "key_padding_mask", "need_weights"), args)) | kwargs
    key = call["key"].shape if call["query"] is not call["key"] else None
    out = object.__new__(QuantizedMultihead)
    out.__dict__.update(module.__dict__)
    out._modules = {**module._modules, "attends": _multihead_call(module, call["query"].shape, key, config, name, call.get("need_weights", True))}
    out.attends.set_module(out)
    return out


def _multihead_call(module, query, key, config, name, weights_read):
    """Returns the MultiheadCall for queries and keys of these shapes. `key` is None for self-attention."""
    shapes = [list(shape) for shape in (query, key) if shape is not None]
    require(all(len(shape) == 3 for shape in shapes), "its inputs have no axis of samples")
    shapes = [shape[1:] if module.batch_first else [shape[0], shape[2]] for shape in shapes]
    return MultiheadCall(module, shapes, config, name, weights_read)


def attention_module(node, partition, config):
    """Returns the Attention for a node of `attention_nodes`. Raises Unsupported."""
    name = partition.names[node]
    if node.op == "call_function":
        shapes = [node_shape(argument(node, i, name)) for i, name in enumerate(("query", "key", "value"))]
        return dot_product(shapes, node.kwargs.get("scale"), config, name)
    query, key = (argument(node, i, name) for i, name in enumerate(("query", "key")))
    return _multihead_call(partition.module(node), node_shape(query), None if query is key else node_shape(key), config, name,
                           any(user.args[1:] != (0,) for user in node.users))


# Modules that torch.fx cannot trace: hooks redirect their calls of scaled_dot_product_attention, and products with their parameters.

class _Redirect(TorchFunctionMode):
    """Replaces the calls of scaled_dot_product_attention, in their order, by calls of the modules `attends`, and products with parameters by
    calls of `products_on_codes`."""

    def __init__(self, module):
        super().__init__()
        self.module, self._remaining = module, iter(module._modules.get("attends", ()))
        self._products = module._modules.get("products_on_codes")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not scaled_dot_product_attention or "attends" not in self.module._modules:
            y = self._products.call(self.module, function, args, kwargs or {}) if self._products is not None else None
            return function(*args, **(kwargs or {})) if y is None else y
        attend = next(self._remaining, None)
        if attend is None:
            raise _fq.ArgumentError(f"[attention] {type(self.module).__name__} calls it more often than with example_input")
        return attend(*args, **(kwargs or {}))


class HiddenRows(TorchFunctionMode):
    """Makes files return zeros for queries whose keys are all hidden, as torch does. Softmax of the engine has other values or NaN there."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args)) | (kwargs or {})
        mask = given.get("attn_mask") if function is scaled_dot_product_attention else None
        if mask is None:
            return function(*args, **(kwargs or {}))
        seen = mask if mask.dtype == torch.bool else mask > -torch.inf
        if mask.dtype != torch.bool:
            given["attn_mask"] = mask.clamp(min=torch.finfo(mask.dtype).min)
        y = function(**given)
        return torch.where(seen.any(-1, keepdim=True), y, torch.zeros((), dtype=y.dtype, device=y.device))


class _Active(threading.local):
    def __init__(self):
        self.redirects = []


_active = _Active()


def _enter(module, args):
    if torch.compiler.is_compiling():
        products = module._modules.get("products_on_codes")
        if products is not None and products.are_on_codes():
            if products.computes_every_expert:
                return  # by Products.every_expert
            if not torch.compiler.is_exporting() or products.has_experts():
                raise _fq.ArgumentError(f"[fakequant.torch] a graph of torch cannot have the products of {type(module).__name__} with its parameters on "
                                        f"codes: quantize with the rule {{'pattern': '*{products.name}*', 'enable': False}}")
            _active.redirects.append(_Redirect(module).__enter__())
            return
        if not any(attend.attend.states for attend in module._modules.get("attends", ())):
            return  # torch computes all of its attention
    _active.redirects.append(_Redirect(module).__enter__())


def _leave(module, args, output):
    if _active.redirects and _active.redirects[-1].module is module:
        _active.redirects.pop().__exit__(None, None, None)


def redirect_calls(module, attends, products):
    """Replaces the attention calls in the forward of `module` by the modules `attends`, and products with its parameters by `products`, unless
    it is None. The hooks of `module` become a copy."""
    if attends:
        module._modules["attends"] = nn.ModuleList(attends)
    if products is not None:
        module._modules["products_on_codes"] = products
    for name in ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called"):
        setattr(module, name, OrderedDict(getattr(module, name)))
    module.register_forward_pre_hook(_enter)
    module.register_forward_hook(_leave, always_call=True)
