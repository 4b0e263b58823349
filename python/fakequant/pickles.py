"""Pickles models and functions: for copy and multiprocessing."""
import copyreg
import operator
import os
import tempfile

from . import _fakequant
from ._fakequant import Model, load


def _function(path):
    return operator.attrgetter(path)(_fakequant)


def _reduce_function(function):
    """Pickles a function of the library by its name."""
    return _function, (f"{function.__module__}.{function.__qualname__}".removeprefix(_fakequant.__name__ + "."),)


def _from_bytes(checkpoint, modes, device):
    with tempfile.TemporaryDirectory(prefix="fakequant-") as folder:
        path = os.path.join(folder, "model.h5")
        with open(path, "wb") as file:
            file.write(checkpoint)
        model = load(path)
    for path, mode in modes.items():
        if path:
            model.set_training([path], mode)
        else:
            model.train(mode)
    return model.to(device)


def _reduce_model(self):
    """Pickles a model as a checkpoint, the mode of each module, and the device."""
    with tempfile.TemporaryDirectory(prefix="fakequant-") as folder:
        path = os.path.join(folder, "model.h5")
        self.save(path)
        with open(path, "rb") as file:
            checkpoint = file.read()
    return _from_bytes, (checkpoint, self.training_modes(), self.device)


Model.__reduce__ = _reduce_model
copyreg.pickle(type(load), _reduce_function)
