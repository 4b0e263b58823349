"""fakequant.torch with its defaults: `quantize` and `calibrate`. Learned ranges are parameters of the model."""

import fakequant.torch as fqt
from formats import FORMATS

FOLLOWS_FLOAT = False


def quantized(network, wanted, x):
    preset = next(name for name, format in FORMATS.items() if format == wanted)
    return fqt.calibrate(fqt.quantize(network.eval(), preset, x), [x])
