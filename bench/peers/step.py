"""Peers of the rows step.*: one call is forward, loss, backward and a step of SGD with momentum."""

import quantized
import torch
from networks import INPUTS, make_network
from peer import row
from torch.nn import functional
from variants import fastest

LEARNING_RATE = 1e-5  # as ours: the numbers hardly move


def training_step(network, channels_last, compiled, bf16):
    model, x, labels = network.model, network.x, network.labels
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9, fused=True)

    def compute_loss(images):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            return functional.cross_entropy(network.logits(model(images)), labels)

    if compiled:
        torch._dynamo.reset()
        compute_loss = torch.compile(compute_loss, dynamic=False)

    def run():
        optimizer.zero_grad()
        compute_loss(x).backward()
        optimizer.step()

    run()
    for name, parameter in model.named_parameters():
        if parameter.grad is None or not parameter.grad.isfinite().all():
            raise ArithmeticError(f"{name} is not trained")
    return run


NO_IMAGES = ("mlp", "gpt", "llama4x256")


def ways(name, folded, forms, bf16):
    """Each form (name -> function that gives the model of a float network) eager and compiled, images in either layout."""
    layouts = {"": False} if name in NO_IMAGES else {", channels last": True, "": False}
    found = {}
    for compiled in (False, True):
        for layout, channels_last in layouts.items():
            if compiled and not channels_last and name not in NO_IMAGES:
                continue  # compiled convolutions reorder row-major images first: never the fastest
            for form, convert in forms.items():
                def make(convert=convert, channels_last=channels_last, compiled=compiled):
                    network = make_network(name, folded)
                    network.model = convert(network)
                    return training_step(network, channels_last, compiled, bf16)

                found[f"{form}{'compiled' if compiled else 'eager'}{layout}{', bf16' if bf16 else ''}"] = make
    return found


def step_side(row_name, settings, forms, bf16=False):
    torch.set_num_threads(settings.threads)
    parts = row_name.split(".")
    return fastest(ways(parts[1], parts[2] == "folded", forms, bf16))


def rows(peer, *subjects):
    """step.<network>[.folded].<subject>/<peer>, and the same of gpt, which has no batch norm."""
    return row(*(f"step.{name}.{folded}{subject}/{peer}" for name in INPUTS for folded in ("", "folded.")
                 for subject in subjects), *(f"step.gpt.{subject}/{peer}" for subject in subjects))


@rows("torch_fp32", "fp32", "qat_int8")
def torch_fp32(name, settings):
    return step_side(name, settings, {"": lambda network: network.model})


@rows("torch_bf16", "qat_int8")
def torch_bf16(name, settings):
    return step_side(name, settings, {"": lambda network: network.model}, bf16=True)


@rows("torch_qat", "qat_int8")
def torch_qat(name, settings):
    return step_side(name, settings, {"ranges observed, ": quantized.torch_observing, "ranges kept, ": quantized.torch_kept})


@rows("modelopt_qat_int8", "qat_int8")
def modelopt_qat_int8(name, settings):
    return step_side(name, settings, {"": quantized.modelopt_int8})


@rows("modelopt_qat_fp8", "qat_e4m3")
def modelopt_qat_fp8(name, settings):
    return step_side(name, settings, {"": quantized.modelopt_fp8})


@rows("brevitas_qat", "qat_int8")
def brevitas_qat(name, settings):
    return step_side(name, settings, {"": quantized.brevitas_int8})


@rows("expert_qat", "qat_int8")
def expert_qat(name, settings):
    return step_side(name, settings, {"a function with a mask, ": quantized.expert_function,
                                      "detached differences, ": quantized.expert_detached}, bf16=True)


@rows("expert_nvfp4", "qat_nvfp4")
def expert_nvfp4(name, settings):
    return step_side(name, settings, {"": quantized.expert_nvfp4}, bf16=True)


@row("step.gpt.qat_8da4w/torchao_8da4w")
def torchao_8da4w(name, settings):
    return step_side(name, settings, {"": quantized.torchao_8da4w})


@row("step.gpt.qat_q4_0/torchao_4w_g32")
def torchao_4w_g32(name, settings):
    return step_side(name, settings, {"": quantized.torchao_4w_g32})


@rows("modelopt_qat_int4_blockwise", "qat_int4_blockwise")
def modelopt_qat_int4_blockwise(name, settings):
    return step_side(name, settings, {"": quantized.modelopt_int4_blockwise})


@rows("fakequant_torch", "qat_int8")
def fakequant_torch(name, settings):
    return step_side(name, settings, {"": quantized.fakequant_torch})
