"""Reads nodes of a torch.fx graph. The metadata of nodes comes from capture.trace."""
import torch
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import TensorMetadata


def is_parameter(value):
    """Returns whether a value is a node that reads a parameter or a buffer of the model."""
    return isinstance(value, torch.fx.Node) and value.op == "get_attr"


def is_constant(value):
    """Returns whether a value is a node that depends on no input: a parameter, a buffer, or a function of them and of sizes."""
    return isinstance(value, torch.fx.Node) and (value.op == "get_attr" or value.meta.get("constant", False))


def is_fixed_input(value):
    """Returns whether a value is an input that is None, True or False in the example."""
    return isinstance(value, torch.fx.Node) and value.op == "placeholder" and "fixed" in value.meta


def fixed_inputs(node):
    """Returns the nodes of the inputs that are None, True or False in the example, and that a node reads, also through fixed values."""
    found, waiting = [], list(node.all_input_nodes)
    while waiting:
        used = waiting.pop()
        found += [used] if is_fixed_input(used) else []
        waiting += used.all_input_nodes if "fixed" in used.meta or is_constant(used) else []
    return found


def is_tensor(node):
    return isinstance(node.meta.get("tensor_meta"), TensorMetadata)


def tensor_inputs(node):
    """Returns the nodes of the tensors that a node reads, without constants."""
    return [value for value in node.all_input_nodes if not is_constant(value) and "tensor_meta" in value.meta]


def base_parameters(node):
    """Returns the nodes of the parameters and buffers that a constant is computed from."""
    if node.op == "get_attr":
        return [node]
    return list(dict.fromkeys(base for used in node.all_input_nodes if is_constant(used) for base in base_parameters(used)))


def node_shape(node):
    return list(node.meta["tensor_meta"].shape)


def is_float(node):
    return node.meta["tensor_meta"].dtype.is_floating_point


def function_name(node):
    """Returns the name of the function or method that a node calls."""
    return node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))


def argument(node, position, name, default=None):
    """Returns an argument of a node. A fixed value is returned instead of its node."""
    return fixed(node.args[position] if len(node.args) > position else node.kwargs.get(name, default))


def fixed(arguments):
    """Returns arguments with fixed values (dataflow.mark_constants) instead of their nodes."""
    return map_arg(arguments, lambda node: node.meta.get("fixed", node))
