"""What a graph of torch.fx becomes: calls of modules in place of parts and of attention."""
from torch import nn

from .attention import dot_product, is_function
from .layers import NoLayer, has_matrix
from .multihead import multihead_call
from .nodes import argument, shape_of
from .program import Step, Value, steps_of


def attention_calls(model, graph, layers, parts, config):
    """{node: module} of attention that is in none of the parts."""
    modules, out = dict(model.named_modules()), {}
    for node in graph.nodes:
        if any(node in part.nodes for part in parts):
            continue
        try:
            if is_function(node):
                given = [argument(node, i, name) for i, name in enumerate(("query", "key", "value"))]
                out[node] = dot_product([shape_of(value) for value in given], node.kwargs.get("scale"), config,
                                        layers.names[node])
            elif node.op == "call_module" and type(modules[node.target]) is nn.MultiheadAttention:
                query, key = (argument(node, i, name) for i, name in enumerate(("query", "key")))
                out[node] = multihead_call(modules[node.target], shape_of(query), None if query is key else shape_of(key), config,
                                           layers.names[node], any(user.args[1:] != (0,) for user in node.users))
        except NoLayer as why:
            layers.reasons[node] = str(why)
    return out


def stay_with_torch(layers, attends):
    """({name of a node: why it stays with torch}, {name of one of attention: why it is a part of its own})."""
    floats, own = {}, {}
    for node, why in layers.reasons.items():
        if node in attends:
            own[layers.names.get(node, node.name)] = why
        elif not any(used in attends for used in node.all_input_nodes):  # of (outputs, weights)
            floats[layers.names.get(node, node.name)] = why
    return floats, own


def hidden(model, graph, layers, attends):
    """A module that stays with torch and has layers of its own, which could be quantized one by one."""
    modules = dict(model.named_modules())
    for node in graph.nodes:
        if node.op == "call_module" and node in layers.reasons and node not in attends:
            below = list(modules[node.target].modules())[1:]
            if any(has_matrix(module) for module in below):
                return node.target
    return ""


def with_codes(graph, parts, attends):
    """The steps of a graph in which parts, and nodes of attention, are calls of modules."""
    inside = {node: name for name, part in parts.items() for node in part.nodes}
    nodes = [node for node in graph.nodes if node not in inside or node is parts[inside[node]].nodes[-1]]
    steps = []
    for node, step in zip(nodes, steps_of(nodes)):
        if node in attends:
            step = Step(node.name, "call_module", f"attends_{attends.index(node)}", step.args, step.kwargs)
        elif node in inside:
            step = Step(node.name, "call_module", inside[node], tuple(Value(used.name) for used in parts[inside[node]].sources), {})
        steps.append(step)
    return _without_unread(steps)


def _read_by(step):
    found = []

    def look(argument):
        if isinstance(argument, Value):
            found.append(argument.name)
        for part in argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else ():
            look(part)
    look((step.args, step.kwargs))
    return set(found)


def _without_unread(steps):
    read_later, kept = set(), []
    for step in reversed(steps):
        if step.kind in ("placeholder", "output") or step.name in read_later:
            step.dead = tuple(_read_by(step) - read_later)
            read_later |= _read_by(step)
            kept.append(step)
    return kept[::-1]
