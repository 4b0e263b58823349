"""summary, layers, quantizers: tables of a quantized model. The warning about layers in floats."""
import contextlib
import dataclasses
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .modules import Quantized, lowered_modules, require_parts
from .ops.layers import has_product
from .state import QuantizerState

#: Attribute of a module whose submodules are quantized one by one: the reason.
FLOAT_REASON = "_fakequant_stays"
#: Attribute of a quantized model: {path of a layer: multiply-adds of the example}.
MULTIPLY_ADDS = "_fakequant_multiply_adds"
#: Text between the name of a layer and the reason in warnings of the library.
FLOAT_MESSAGE = "' stays in floats: "
_OFF, _MOST = "its quantizers are off", 3
#: {matrix product of torch: position of the first factor}.
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "linear": 0, "_grouped_mm": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


def layers(model):
    """Returns a dict for each module with parameters of its own, in their order: `layer` is its name in the model, `type` its class.

    `runs` is "codes" if the weights or the inputs are quantized, "float" if the library computes in floats, and "torch" if torch computes.
    `why` is the reason for "float" and "torch".
    """
    return [row for row, _ in _rows(model)]


def _rows(model):
    """Yields the row and the module of each layer."""
    in_library, reasons = _parameter_reasons(model), {}
    for name, module in model.named_modules():
        prefix = name + "." if name else ""
        if isinstance(module, Quantized):
            reasons[name] = ""
            reasons |= {(prefix + target).rstrip("."): why for target, why in module.module_reasons.items()}
        if FLOAT_REASON in vars(module):
            reasons[name] = vars(module)[FLOAT_REASON]
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
    """Returns a dict for each quantizer, in the order of the layers: `name` (path of its layer and role), `aliases` (names in other layers
    that read the same tensor), `enabled`, `amax` ((lowest, highest) or None), `weight` (whether it quantizes a weight), `learned`, `format`
    and `descriptor`. Raises ArgumentError if the model is not quantized."""
    require_parts(model, "quantizers")
    return [{"name": row["name"], "aliases": row["aliases"], "enabled": row["enabled"], "amax": row["amax"], "weight": row["weight"],
             "learned": fields.get("learn_amax", False), "format": row["format"], "descriptor": fields}
            for lowered in lowered_modules(model) for row in lowered.network.quantizers() for fields in [row["descriptor"].dict()]]


@dataclasses.dataclass
class Summary:
    """Coverage of a quantized model. `print(summary)` shows it as a table.

    `rows` has the dicts of `layers`, with `weights` and `inputs` (formats, "" if not quantized), `amax` (range of the inputs) and
    `multiply_adds` (of the example). `share` is the share of the multiply-adds with parameters that are on codes, 0 to 1.
    """
    rows: list
    share: float

    def __str__(self):
        total = max(sum(row["multiply_adds"] for row in self.rows), 1)
        head = "layer", "type", "weights", "inputs", "range", "runs", "share", "reason"
        lines = [head] + [(row["layer"], row["type"], row["weights"], row["inputs"], _range_text(row["amax"]), row["runs"],
                           f"{100 * row['multiply_adds'] / total:.1f} %", row["why"]) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([*text, f"{100 * self.share:.1f} % of the multiply-adds with parameters are on codes"])


def summary(model):
    """Returns the Summary of a quantized model. Raises ArgumentError if the model is not quantized."""
    by_name = {name: row for row in quantizers(model) for name in (row["name"], *row["aliases"]) if row["enabled"]}
    counts, rows = next((vars(module)[MULTIPLY_ADDS] for module in model.modules() if MULTIPLY_ADDS in vars(module)), {}), []
    # Adapters of peft move a layer to another path. Quantizers keep the path of `quantize`.
    paths = {id(ref.module): name.rpartition(".")[0] for lowered in lowered_modules(model) for name, ref in lowered.refs.items()}
    for row, module in list(_rows(model)):
        path = paths.get(id(module), row["layer"])
        weight, read = (by_name.get(f"{path}.{role}_quantizer", {}) for role in ("weight", "input"))
        rows.append(row | {"weights": weight.get("format", ""), "inputs": read.get("format", ""), "amax": read.get("amax"),
                           "multiply_adds": counts.get(path, counts.get(row["layer"], 0))})
    total = sum(row["multiply_adds"] for row in rows)
    on_codes = sum(row["multiply_adds"] for row in rows if row["runs"] == "codes")
    return Summary(rows, on_codes / total if total else 0.0)


def print_quant_summary(model):
    """Prints a line for each quantizer, in the form of ModelOpt's function of this name."""
    rows = quantizers(model)
    for row in rows:
        print(f"{row['name']:<80} TensorQuantizer({_modelopt_text(row)})")
    print(f"{len(rows)} TensorQuantizers found in model")


def _modelopt_text(row):
    if not row["enabled"]:
        return "disabled"
    fields = row["descriptor"]
    bits, blocks, axis = fields.get("num_bits", 8), fields.get("block_sizes"), fields.get("axis")
    granularity = f"block_sizes={blocks}" if blocks else "per-tensor" if axis is None else f"axis={axis}"
    amax = "dynamic" if fields.get("dynamic") or row["amax"] is None else "amax=" + _range_text(row["amax"])
    return f"{bits if isinstance(bits, int) else tuple(bits)} bit fake {granularity} {amax} quant"


def _range_text(amax):
    if amax is None:
        return ""
    lowest, highest = amax
    return f"{lowest:.4g}" if lowest == highest else f"[{lowest:.4g}, {highest:.4g}]"


def _reason(name, reasons):
    """Returns the reason of the module, or of the nearest parent that has one."""
    while name and name not in reasons:
        name = name.rpartition(".")[0]
    return reasons.get(name, "")


def _parameter_reasons(model):
    """Returns {id of a parameter of the library: why its layer is not quantized, or ""}."""
    out = {}
    for lowered in lowered_modules(model):
        types = {node["name"]: node["type"] for node in lowered.nodes}
        enabled = [name for row in lowered.network.quantizers() if row["enabled"] for name in (row["name"], *row["aliases"])]
        warned = dict(message[1:].split(FLOAT_MESSAGE) for message in lowered.warnings if FLOAT_MESSAGE in message)
        for name, ref in lowered.refs.items():
            tensor, layer = id(getattr(ref.module, ref.name)), name.rpartition(".")[0]
            layer_type = types[layer if layer in types else layer.rpartition(".")[0]]  # q_proj of attention
            is_quantized = any(name.startswith(layer + ".") for name in enabled) or (layer_type == "batch_norm" and enabled)
            why = warned.get(layer, _OFF if has_product(layer_type) else f"{_class_of(ref.module).__name__} is not quantized")
            out[tensor] = "" if is_quantized or out.get(tensor) == "" else why
    return out


def float_reasons(model):
    """Returns a list of at most one text: why layers with matrices are not quantized."""
    found = [f"'{row['layer']}': {row['why']}" for row, module in _rows(model) if row["why"] and any(p.dim() > 1 for p in module.parameters())]
    return ["; ".join(found[:_MOST]) + f" and {len(found) - _MOST} more" * (len(found) > _MOST)] if found else []


def count_multiply_adds(model, original, args, kwargs):
    """Counts the multiply-adds with parameters of each layer of a quantized model, in one call of the float model `original`."""
    with torch.no_grad(), parametrize.cached():
        counted = _count_products(original, args, kwargs)
        # A matrix that several layers share counts once, for the first of them that multiplies by it.
        vars(model)[MULTIPLY_ADDS] = {row["layer"]: sum(counted.pop(_address(matrix), 0) for matrix in _matrices(module))
                                      for row, module in _rows(model) if not isinstance(module, nn.Embedding)}


def floats_warning(model):
    """Returns a list of at most one warning. It names the largest layers in floats and their share of the multiply-adds. Layers that the
    config switches off do not count."""
    counts = vars(model)[MULTIPLY_ADDS]
    total = max(sum(counts.values()), 1)
    shares = [(100 * counts.get(row["layer"], 0) / total, row) for row in layers(model) if row["why"] not in ("", _OFF)]
    shares = sorted(((share, row) for share, row in shares if share > 0), key=lambda pair: -pair[0])
    if not shares:
        return []
    named = [f"'{row['layer']}' ({share:.2g} %: {row['why']})" for share, row in shares[:_MOST]]
    more = f" and {len(shares) - _MOST} more" * (len(shares) > _MOST)
    return [f"[quantize] {sum(share for share, _ in shares):.2g} % of the multiply-adds with parameters stay in floats: {', '.join(named)}"
            f"{more}. fakequant.torch.summary(model) lists all layers"]


class _ProductCounter(TorchDispatchMode):
    """Counts the multiply-adds of products with given matrices: `counts` is {address of a matrix: number}."""

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
    """Returns the number of multiply-adds of an operator of torch, 0 if it is not a product."""
    if name in _PRODUCTS:
        return out.numel() * args[_PRODUCTS[name]].shape[-1]
    if name not in ("convolution", "_convolution"):
        return 0
    x, weight, transposed = args[0], args[1], args[6]
    return (x if transposed else out).numel() * weight[0].numel()


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


def _matrices(module):
    """Returns the matrices of a module without its children. Within parametrize.cached a computed matrix keeps its address."""
    own = [*module.parameters(recurse=False)]
    if parametrize.is_parametrized(module):
        own += [getattr(module, name) for name in module.parametrizations]
    return [matrix for matrix in own if matrix.dim() > 1]


def _count_products(model, args, kwargs):
    """Returns {address of a matrix: multiply-adds of one call}. Embeddings multiply nothing."""
    modes = {module: module.training for module in model.modules()}
    matrices = [matrix for module in modes if not isinstance(module, nn.Embedding) for matrix in _matrices(module)]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [setattr(module, "training", mode) for module, mode in modes.items()])
        stack.enter_context(torch.random.fork_rng(devices=[]))
        with warnings.catch_warnings():  # about other devices
            warnings.simplefilter("ignore")
            # The dispatch mode does not see the products in fused operators: recurrent layers, and transformer layers in evaluation.
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        products = stack.enter_context(_ProductCounter(matrices))
        model.eval()(*args, **kwargs)
    return products.counts
