"""Linear layers of a network in ggml, and the first difference between llama.cpp's graph and the checkpoint. The graph reports
every product with its input, which is the result of the operators between two products."""
import h5py
import numpy as np

from .comparison import Unusable
from .llama import BUFFERS

NORM = "float sums in the engine's own order"
# Operator that llama.cpp computes before a product, by the end of the weight name.
BETWEEN = {"attn_qkv": "norm", "attn_q": "norm", "attn_k": "norm", "attn_v": "norm", "attn_output": "attention", "ffn_gate": "norm",
           "ffn_up": "norm", "ffn_down": "activation", "output": "norm", "token_embd": "norm"}
# End of the layer name in the checkpoint, for weights that the engine multiplies in another order.
OURS = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "ffn_gate": "gate_proj", "ffn_up": "up_proj"}
FLOATS = 2e-6  # difference, relative to the largest value, from another order of float sums


class Layer:
    """A linear layer as it ran in fakequant: x [.., columns], y [.., channels], bias, and whether the weight is codes."""

    def __init__(self, name, group):
        self.name = name
        self.x, self.y = group["x"][...], group["y"][...]
        self.bias = group["bias"][...] if "bias" in group else np.float32(0)
        self.coded = "codes" in group

    def rows(self, values):
        return values.reshape(-1, values.shape[-1])


def read_layers(path):
    """Returns the layers in order of execution, and their samples."""
    with h5py.File(path) as file:
        return [Layer(name.split(" ", 1)[1], file["layers"][name]) for name in sorted(file["layers"])], file["x"][...]


def weight_kind(weight):
    return weight.removesuffix(".weight").split(".")[-1]


def output_order(engine, weight, rows):
    """Returns the order of the outputs in the checkpoint. llama.cpp's `llama` interleaves the halves of a head in queries and keys."""
    heads = {"attn_q": engine.heads, "attn_k": engine.kv_heads}.get(weight_kind(weight))
    if engine.architecture != "llama" or heads is None:
        return np.arange(rows)
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).ravel()


def match_products(engine, layers, ids):
    """Returns (weight, its layers, x, y) for each product of one text in the graph of the engine. y has the order of the checkpoint."""
    seen, left, found = [], list(layers), []
    engine.logits(ids, layers[-1].y.shape[-1], lambda *product: seen.append(product))
    for weight, x, y in seen:
        of, end = [], OURS.get(weight_kind(weight), "")
        while left and sum(layer.y.shape[-1] for layer in of) < y.shape[1]:
            of.append(left.pop(next((i for i, layer in enumerate(left[:3]) if layer.name.endswith(end)), 0)))
        if sum(layer.y.shape[-1] for layer in of) != y.shape[1] or of[0].x.shape[-1] != x.shape[1]:
            raise Unusable(f"its {weight} has {y.shape[1]} outputs, and the next layers of the checkpoint have another number")
        found.append((weight, of, x, y[:, output_order(engine, weight, y.shape[1])]))
    if left:
        raise Unusable(f"it has no product for '{left[0].name}'")
    return found


def bits_different(a, b):
    return int((np.ascontiguousarray(a).view(np.int32) != np.ascontiguousarray(b).view(np.int32)).sum())


def relative(own, made):
    return float(np.abs(own.astype(np.float64) - made).max() / max(np.abs(own).max(), 1e-30))


def compare_products(engine, path):
    """Multiplies the weight of each layer alone with the inputs of the checkpoint, in the buffer that llama.cpp uses.

    The buffer is the one whose product of the graph's own inputs has the bits of the graph. Returns a dict for each layer of codes.
    """
    layers, ids = read_layers(path)
    found = []
    for weight, of, x, y in match_products(engine, layers, ids[0]):
        order = output_order(engine, weight, y.shape[1])
        taken = {buffer: engine.product(weight, buffer, x, y.shape[1]) for buffer in BUFFERS}
        taken = {buffer: made[:, order] for buffer, made in taken.items() if made is not None}
        same = [buffer for buffer, made in taken.items() if bits_different(made, y) == 0]
        at, buffer = 0, (same or ["plain"])[0]
        made = engine.product(weight, buffer, of[0].rows(of[0].x), y.shape[1])[:, order]
        for layer in of:
            own = layer.rows(layer.y)
            part = made[:, at:at + own.shape[1]] + layer.bias
            at += own.shape[1]
            if layer.coded:
                found.append({"name": layer.name, "weight": weight, "buffer": buffer, "graph_buffers": same,
                              "values": own.size, "bits_different": bits_different(own, part),
                              "largest": relative(own, part)})
    return found


def between(engine, weight, exact):
    """Returns (operator, how): the operator of llama.cpp before the product of a weight, and how it computes."""
    operator, gpt2 = BETWEEN.get(weight_kind(weight), "floats"), engine.architecture == "gpt2"
    if operator == "attention":
        return operator, ("keys, values and probabilities are rounded to f16" if engine.cache == "f16" else
                          "softmax and float sums in the engine's own order")
    if operator == "activation" and gpt2:
        return "GELU", "tanh comes from a table of f16" + (", an approximation where the checkpoint has the exact GELU" if exact else "")
    return {"norm": "LayerNorm" if gpt2 else "RMSNorm", "activation": "SiLU and a product"}.get(operator, operator), NORM


def compare_stages(engine, path):
    """Compares the input of each product in the checkpoint and in the engine, for the first text."""
    layers, ids = read_layers(path)
    found, exact = [], exact_gelu(layers)
    for weight, of, x, _ in match_products(engine, layers, ids[0]):
        operator, how = between(engine, weight, exact)
        found.append({"before": of[0].name, "weight": weight, "operator": operator, "how": how,
                      "largest": relative(of[0].x[0], x)})
    return found


def exact_gelu(layers):
    """Returns whether the checkpoint has the exact GELU. llama.cpp has the tanh approximation."""
    for before, layer in zip(layers, layers[1:]):
        if layer.x.shape == before.y.shape and layer.x.shape != before.x.shape and (layer.x != before.y).any():
            v = before.y.astype(np.float64)
            tanh = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v ** 3)))
            return bool(np.abs(layer.x - tanh).max() > 1e-5)
    return False


def explain(engine, products, stages):
    """Returns (reasons, ways, lines) of the differences."""
    reasons, ways, lines = [], [], []
    wrong = next((product for product in products if product["bits_different"]), None)
    if wrong:
        reasons.append(f"the product of '{wrong['name']}' has {wrong['bits_different']:,} of {wrong['values']:,} values with other "
                       f"bits, by {wrong['largest']:.2g} of the largest: the file is not of this checkpoint, or the sums "
                       "have another order")
        ways.append("export it again from this checkpoint; on other processors than x86-64 with AVX2, ggml adds up in "
                    "another order")
    first = next((stage for stage in stages if stage["largest"] > FLOATS), None)
    if first and first is stages[0] and engine.type("token_embd.weight") == "f16":
        first = first | {"operator": "token embedding", "how": "the file keeps it in f16, like other matrices"}
        ways.append("export it with --float-type f32")
    if first:
        line = (f"{first['operator']} before '{first['before']}' is the first difference, by {first['largest']:.2g} of the largest "
                f"value: {first['how']}")
        lines.append(line)
        reasons.append(line)
    if any("exact GELU" in stage["how"] and stage["largest"] > FLOATS for stage in stages):
        lines.append("the checkpoint has the exact GELU, and llama.cpp the tanh approximation from a table of f16")
        ways.append('train with {"type": "gelu", "options": {"approximate": "tanh"}}')
    worst = {}
    for stage in stages:
        worst[stage["operator"]] = max(worst.get(stage["operator"], 0.0), stage["largest"])
    if worst:
        lines.append("largest differences after operators that llama.cpp computes in floats: "
                     + ", ".join(f"{name} {value:.2g}" for name, value in worst.items()))
    if not products and stages:
        lines.append("no linear layer has codes: only the logits of float products are compared")
    return reasons, ways, lines
