"""Names of layers: paths of modules, as torch's named_modules has them."""
import re
from collections import Counter

from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from .nodes import name_of


def joined(*parts):
    """Joins the parts of a module path with dots and leaves out empty parts."""
    return ".".join(part for part in parts if part)


class Names:
    """Gives each layer of a module a path of its own in the whole model.

    A module that is called has its own path, from the second call on `<path>.call_2`. A function has the path of the module whose
    forward calls it and its own name: `layers.0.add`, `layers.0.add_1`.
    """

    def __init__(self, model, path):
        self._path, self._calls, self._made = path, Counter(), {}
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        self._taken = {joined(path, name) for name, _ in [*model.named_modules(remove_duplicate=False), *tensors]} | {"input"}

    def path_of(self, path):
        """The path in the whole model of a path in this one."""
        return joined(self._path, path)

    def of_module(self, path):
        """The name of the next call of the module at a path in this model."""
        whole = self.path_of(path)
        self._calls[whole] += 1
        count = self._calls[whole]
        if count == 1 and whole not in ("", "input"):
            return _legal(whole)
        return self._unique(joined(whole, f"call_{count}") if count > 1 else whole or "layer")

    def of_function(self, parent, function):
        """The name of the next call of a function in the forward of the module at that path."""
        return self._unique(joined(self._path, parent, function))

    def below(self, name, part):
        """The name of a part of a layer, the same one for the same part."""
        if (name, part) not in self._made:
            self._made[name, part] = self._unique(joined(name, part))
        return self._made[name, part]

    def of_input(self, name):
        """The name of an input of the model."""
        return self.below("", name)

    def _unique(self, wish):
        name, count = _legal(wish), 0
        while name in self._taken:
            count += 1
            name = f"{_legal(wish)}_{count}"
        self._taken.add(name)
        return name


def _legal(name):
    """A name with the characters that model files allow."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _caller(node, modules):
    """(path of the module whose forward calls a function, the function's name there).

    Children of containers are their items, so that a function in the forward of one is named beside it.
    """
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, name = stack[-1][0] if stack else "", name_of(node)
    while path and isinstance(modules.get(path), (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        path, _, last = path.rpartition(".")
        name = f"{last}_{name}"
    return path, name


def name_layers(model, graph, found, names):
    """{node: name} of all nodes that call something. `found` has the layers of the library."""
    modules = dict(model.named_modules())
    paths, out = {module: path for path, module in modules.items()}, {}
    for node in graph.nodes:
        weight = found[node].places.get("weight") if node in found else None
        if node.op == "call_module":
            out[node] = names.of_module(node.target)
        elif node.op in ("call_function", "call_method"):
            path, function = _caller(node, modules)
            own = weight is not None and weight.name == "weight" and paths.get(weight.module) == path  # a layer by itself
            attends = node.target is scaled_dot_product_attention and names.path_of(path)  # "self_attn.q_bmm_quantizer", as in ModelOpt
            out[node] = names.of_module(path) if own or attends else names.of_function(path, function)
    return out
