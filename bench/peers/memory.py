"""Peers of the rows memory.*: bytes that autograd keeps from the end of forward to backward."""

import quantized
import torch
from networks import make_network
from peer import Side, row
from torch.nn import functional


def saved_bytes(network):
    """Bytes of the storages saved for backward, each counted once. The input and tensors with the shape of a parameter, such
    as a fake-quantized weight, do not count."""
    model, parameters = network.model, {parameter.shape for parameter in network.model.parameters()}
    known = {tensor.untyped_storage().data_ptr() for tensor in (network.x, network.labels, *model.parameters())}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if tensor.shape not in parameters and storage.data_ptr() not in known:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = functional.cross_entropy(model(network.x), network.labels)
    size = sum(size for size, _ in kept.values())
    loss.backward()
    return size


def least(row_name, settings, forms):
    """The form that keeps least."""
    torch.set_num_threads(settings.threads)
    found = {}
    for form, convert in forms.items():
        network = make_network(row_name.split(".")[2], folded=True)
        network.model = convert(network)
        found[form] = round(saved_bytes(network) / 2**20, 4)
    variant = min(found, key=found.get)
    return Side(None, value=lambda: found[variant], variant=variant, variants=found)


def rows(peer):
    return row(*(f"memory.saved_bytes.{name}.qat_int8_folded/{peer}" for name in ("mlp", "cnn", "resnet20")))


@rows("torch_qat")
def torch_qat(name, settings):
    return least(name, settings, {"ranges observed": quantized.torch_observing, "ranges kept": quantized.torch_kept})


@row("memory.saved_bytes.gpt.qat_int8/modelopt")
@rows("modelopt")
def modelopt(name, settings):
    return least(name, settings, {"eager": quantized.modelopt_int8})
