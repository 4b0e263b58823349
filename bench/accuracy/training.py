"""Fine-tuning of a peer: AdamW on a one-cycle schedule, the batches of an epoch shuffled, nothing augmented.
Text has a label for each position."""

from itertools import islice

import torch
from formats import LAYERS
from torch.nn import functional

DECAY, TEMPERATURE = 0.01, 2


def groups(model):
    """Weights decay. Biases, norms and parameters of quantizers do not."""
    weights = {id(module.weight) for module in model.modules() if isinstance(module, LAYERS)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [{"params": [p for p in parameters if id(p) in weights], "weight_decay": DECAY},
            {"params": [p for p in parameters if id(p) not in weights], "weight_decay": 0.0}]


def compute_loss(logits, labels, followed):
    loss = functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    if followed is None:
        return loss
    distance = functional.kl_div((logits / TEMPERATURE).log_softmax(1), (followed / TEMPERATURE).log_softmax(1),
                                 reduction="batchmean", log_target=True)
    return 0.5 * loss + 0.5 * TEMPERATURE**2 * distance


def shuffled(count, batch):
    """Yields the rows of each batch, one epoch after another."""
    while True:
        yield from torch.randperm(count)[:count // batch * batch].split(batch)


def tune(model, teacher, x, y, job):
    """`teacher`: a float network for distillation, with half of the loss, or None."""
    batch, rate = job["batch"], job["rate"]
    steps = job.get("steps") or job["epochs"] * (len(x) // batch)
    optimizer = torch.optim.AdamW(groups(model), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, cycle_momentum=False)
    model.train()
    for rows in islice(shuffled(len(x), batch), steps):
        followed = None
        if teacher is not None:
            with torch.no_grad():
                followed = teacher(x[rows])
        optimizer.zero_grad()
        compute_loss(model(x[rows]), y[rows], followed).backward()
        optimizer.step()
        schedule.step()
