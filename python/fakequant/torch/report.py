"""layers, quantizers: what became of each layer, its quantizers, and the warning of `quantize` about layers in floats."""
import contextlib
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import _fakequant as _fq
from .layers import has_product
from .networks import STAYS, STAYS_IN_FLOATS, Quantized, codes_of_model, parts_of
from .quantizer_state import QuantizerState

_OFF, _MOST = "its quantizers are off", 3
#: Products of matrices, by the place of the first factor.
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "linear": 0, "_grouped_mm": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


def layers(model):
    """Returns a dict for each module with parameters of its own, in their order: `layer` is its name in the model, `type` its class.

    `runs` is "codes" where the weights or the inputs are quantized, "float" where the library computes in floats, "torch" where torch
    does. `why` is the reason for "float" and "torch".
    """
    return [row for row, _ in _rows(model)]


def _rows(model):
    """Yields the row and the module of each layer."""
    in_library, reasons = _of_parts(model), {}
    for name, module in model.named_modules():
        prefix = name + "." if name else ""
        if isinstance(module, Quantized):
            reasons[name] = ""
            reasons |= {(prefix + target).rstrip("."): why for target, why in module.why.items()}
        if STAYS in vars(module):
            reasons[name] = vars(module)[STAYS]
        own = [*module.parameters(recurse=False), *(module.parametrizations if parametrize.is_parametrized(module) else ())]
        if own and not isinstance(module, (QuantizerState, parametrize.ParametrizationList)):
            found = [in_library[id(parameter)] for parameter in own if id(parameter) in in_library]
            runs = "torch" if not found else "codes" if "" in found else "float"
            why = "" if runs == "codes" else found[0] if found else _reason(name, reasons)
            kind = _class_of(module).__name__
            yield {"layer": name, "type": kind, "runs": runs, "why": why or ("" if runs == "codes" else f"{kind} is not quantized")}, module


def _class_of(module):
    if isinstance(module, Quantized):
        return module.origin
    return nn.MultiheadAttention if isinstance(module, nn.MultiheadAttention) else parametrize.type_before_parametrizations(module)


def quantizers(model):
    """A dict for each quantizer, in the order of the model's parts: `name` (the path of its layer and its role), `aliases` (of other
    layers that read the same tensor), `enabled`, `amax` ((lowest, highest) or None), `weight` (whether it quantizes a weight),
    `learned`, `format` and `descriptor`."""
    codes = codes_of_model(model)
    if not codes:
        raise _fq.ArgumentError("[quantizers] the model has nothing quantized: give what fakequant.torch.quantize made")
    return [{"name": row["name"], "aliases": row["aliases"], "enabled": row["enabled"], "amax": row["amax"], "weight": row["weight"],
             "learned": fields.get("learn_amax", False), "format": row["format"], "descriptor": fields}
            for one in codes for row in one.network.quantizers() for fields in [row["descriptor"].dict()]]


def _reason(name, reasons):
    """The reason of the module or, where nothing is known of it, of the nearest module that contains it."""
    while name and name not in reasons:
        name = name.rpartition(".")[0]
    return reasons.get(name, "")


def _of_parts(model):
    """Returns {id of a parameter that the library computes with: why nothing of its layer is quantized}; "" is for quantized ones."""
    out = {}
    for part in parts_of(model):
        for codes in part.codes().values():
            kinds = {node["name"]: node["type"] for node in codes._nodes}
            enabled = [name for row in codes.network.quantizers() if row["enabled"] for name in (row["name"], *row["aliases"])]
            told = dict(message[1:].split(STAYS_IN_FLOATS) for message in codes.told if STAYS_IN_FLOATS in message)
            for name, place in codes._places.items():
                tensor, layer = id(getattr(place.module, place.name)), name.rpartition(".")[0]
                kind = kinds[layer if layer in kinds else layer.rpartition(".")[0]]  # q_proj of attention
                quantized = any(name.startswith(layer + ".") for name in enabled) or (kind == "batch_norm" and enabled)
                why = told.get(layer, _OFF if has_product(kind) else f"{_class_of(place.module).__name__} is not quantized")
                out[tensor] = "" if quantized or out.get(tensor) == "" else why
    return out


def reasons(model):
    """Returns a list of one text, the reasons of layers with matrices; the list is empty where there is no such layer."""
    found = [f"'{row['layer']}': {row['why']}" for row, module in _rows(model) if row["why"] and any(p.dim() > 1 for p in module.parameters())]
    return ["; ".join(found[:_MOST]) + f" and {len(found) - _MOST} more" * (len(found) > _MOST)] if found else []


def floats_warning(model, original, args, kwargs):
    """Returns a list of one text, which names the largest layers in floats and their share of the multiply-adds of `original` on an
    example. The list is empty where all products are on codes. Layers that the config switches off do not count."""
    left = [(row, module) for row, module in _rows(model) if row["why"] not in ("", _OFF) and not isinstance(module, nn.Embedding)]
    if not any(p.dim() > 1 for _, module in left for p in module.parameters()):
        return []
    with torch.no_grad(), parametrize.cached():
        counted = _counted(original, args, kwargs)
        total = max(sum(counted.values()), 1)
        shares = [(sum(counted.pop(_address(matrix), 0) for matrix in _matrices(module)) / total, row) for row, module in left]
    shares = sorted(((100 * share, row) for share, row in shares if share > 0), key=lambda pair: -pair[0])
    if not shares:
        return []
    named = [f"'{row['layer']}' ({share:.2g} %: {row['why']})" for share, row in shares[:_MOST]]
    more = f" and {len(shares) - _MOST} more" * (len(shares) > _MOST)
    return [f"[quantize] {sum(share for share, _ in shares):.2g} % of the multiply-adds with parameters stay in floats: {', '.join(named)}"
            f"{more}. fakequant.torch.layers(model) lists all layers"]


class _Products(TorchDispatchMode):
    """Counts the multiply-adds of products with some matrices: `counts` is {address of a matrix: number}."""

    def __init__(self, matrices):
        super().__init__()
        self.counts = dict.fromkeys(map(_address, matrices), 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        count = _multiply_adds(function._overloadpacket.__name__, args, out)
        if count:
            read = {_address(value) for value in tree_leaves(args) if isinstance(value, torch.Tensor)}
            for address in read & self.counts.keys():
                self.counts[address] += count
        return out


def _multiply_adds(name, args, out):
    """Returns the multiply-adds of an operator of torch, and 0 for other operators than products."""
    if name in _PRODUCTS:
        return out.numel() * args[_PRODUCTS[name]].shape[-1]
    if name not in ("convolution", "_convolution"):
        return 0
    x, weight, transposed = args[0], args[1], args[6]
    return (x if transposed else out).numel() * weight[0].numel()


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


def _matrices(module):
    """The matrices of a module itself. Within parametrize.cached a computed one keeps its address."""
    own = [*module.parameters(recurse=False)]
    if parametrize.is_parametrized(module):
        own += [getattr(module, name) for name in module.parametrizations]
    return [matrix for matrix in own if matrix.dim() > 1]


def _counted(model, args, kwargs):
    """Returns {address of a matrix: multiply-adds of one call}. Embeddings multiply nothing."""
    modes = {module: module.training for module in model.modules()}
    matrices = [matrix for module in modes if not isinstance(module, nn.Embedding) for matrix in _matrices(module)]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [setattr(module, "training", mode) for module, mode in modes.items()])
        stack.enter_context(torch.random.fork_rng(devices=[]))
        with warnings.catch_warnings():  # of other devices
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))  # which hides the products of recurrent layers
        products = stack.enter_context(_Products(matrices))
        model.eval()(*args, **kwargs)
    return products.counts
