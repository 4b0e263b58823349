"""What is asked of nodes of torch.fx."""
import torch


def is_own(value):
    """Whether it is a parameter or a buffer of the model."""
    return isinstance(value, torch.fx.Node) and value.op == "get_attr"


def is_absent(value):
    """Whether it is an input that the example has as None."""
    return isinstance(value, torch.fx.Node) and value.op == "placeholder" and value.meta.get("type") is type(None)


def has_hooks(module):
    """Whether torch runs more than its forward when it is called."""
    return any((module._forward_pre_hooks, module._forward_hooks, module._backward_hooks, module._backward_pre_hooks))


def is_tensor(node):
    return isinstance(node.meta.get("tensor_meta"), torch.fx.passes.shape_prop.TensorMetadata)


def _is_cut(node):
    """Whether it is a tuple of parts of one tensor, read one by one: chunk and split."""
    return node.op in ("call_function", "call_method") and name_of(node) in ("chunk", "split") and len(node.all_input_nodes) == 1


def readers_skip(node):
    """Whether those who read the node read its input instead: parts of a tensor, which each reader cuts out."""
    return _is_cut(node) and all(name_of(user) == "getitem" for user in node.users)


def turned(node):
    """The parameter [a, b] whose transpose a node is, or None."""
    if node.op not in ("call_method", "call_function") or not node.args or not is_own(node.args[0]):
        return None
    name, axes = name_of(node), node.args[1:]
    swaps = (name == "t" and not axes) or (name == "getattr" and axes in (("T",), ("mT",))) or (
        name == "transpose" and sorted(axis % 2 for axis in axes) == [0, 1])
    return node.args[0] if swaps and is_tensor(node.args[0]) and len(shape_of(node.args[0])) == 2 else None


def tensor_inputs(node):
    """The tensors that a node computes with; constants of the model are none."""
    sources = [value.all_input_nodes[0] if readers_skip(value) else value for value in node.all_input_nodes]
    return [value for value in dict.fromkeys(sources)
            if value.op != "get_attr" and turned(value) is None
            and (is_tensor(value) or not _is_number(value))]


def _is_number(node):
    return "tensor_meta" not in node.meta


def shape_of(node):
    return list(node.meta["tensor_meta"].shape)


def name_of(node):
    """A function's or method's own name."""
    return node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))


def argument(node, place, name, default=None):
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
