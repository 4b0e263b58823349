"""Arrays of a GPU in streams of their owner's, on the simulated device of tests/simulated: work is done when something waits for
it and no sooner, so that values are wrong wherever an order is missing."""
import ctypes as c
import os
import sys

import numpy as np
import pytest

sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)  # the library looks for cuBLASLt among what is loaded
import fakequant as fq  # noqa: E402
from exchange_table import give_table, lent  # noqa: E402

cuda = c.CDLL(fq._fakequant.__file__)
TO_DEVICE, TO_HOST = 1, 2


class Stream:
    def __init__(self):
        self.address = c.c_void_p()
        assert cuda.cudaStreamCreateWithFlags(c.byref(self.address), 1) == 0

    def wait(self):
        assert cuda.cudaStreamSynchronize(self.address) == 0


class Memory:
    """One block of the device, apart from the library's: the simulated pool hands blocks on from stream to stream at once."""

    def __init__(self, size):
        self.end, block = size, c.c_void_p()
        assert cuda.cudaMallocFromPoolAsync(c.byref(block), c.c_size_t(size), None, theirs[0].address) == 0
        self.first, self.taken = block.value, 0

    def take(self, count):
        begin, self.taken = self.taken, self.taken + -(-count // 256) * 256
        assert self.taken <= self.end
        return self.first + begin


theirs = [Stream()]
memory = Memory(64 << 20)


class Array:
    """float32 on the device, written and read in the current stream of `theirs`."""

    def __init__(self, pointer, shape, free):
        self.pointer, self.shape, self._free = pointer, shape, free

    @classmethod
    def of(cls, values):
        values = np.ascontiguousarray(values, np.float32)
        out = cls(memory.take(values.nbytes), values.shape, lambda: None)
        out.write(values)
        return out

    def write(self, values):
        values = np.ascontiguousarray(values, np.float32)
        assert values.shape == tuple(self.shape)
        self._copy(self.pointer, values.ctypes.data, values.nbytes, TO_DEVICE)

    def read_later(self):
        """What the stream copies when it is waited for."""
        out = np.empty(self.shape, np.float32)
        pinned = c.c_void_p()
        assert cuda.cudaHostAlloc(c.byref(pinned), c.c_size_t(out.nbytes), 0) == 0
        self._copy(pinned, self.pointer, out.nbytes, TO_HOST)
        return lambda: (theirs[0].wait(), c.memmove(out.ctypes.data, pinned, out.nbytes), out)[2]

    def numpy(self):
        return self.read_later()()

    def _copy(self, to, source, count, kind):
        pointer = lambda at: at if isinstance(at, c.c_void_p) else c.c_void_p(at)  # noqa: E731
        assert cuda.cudaMemcpyAsync(pointer(to), pointer(source), c.c_size_t(count), kind, theirs[0].address) == 0

    def __del__(self):
        self._free()


give_table(Array, lambda: theirs[0].address.value)
X = np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)
quant = fq.modelopt.fake_tensor_quant


@pytest.fixture(autouse=True, params=["own", "default"])
def stream(request):
    """A stream of its own and CUDA's default one, whose address is 0, as torch's is at first."""
    kept = theirs[0]
    if request.param == "default":
        theirs[0] = type("Default", (), {"address": c.c_void_p(None), "wait": Stream.wait})()
    yield
    theirs[0].wait()
    theirs[0] = kept


def same(array, values):
    return np.array_equal(array.numpy(), values)


def test_the_device_is_simulated():
    assert fq.cuda_device_count() == 1


def test_functions_wait_for_what_they_read():
    assert type(quant(Array.of(X), 2.0)) is Array
    assert same(quant(Array.of(X), 2.0), quant(X, 2.0))
    amax = np.abs(X).max(0, keepdims=True)
    assert same(quant(Array.of(X), Array.of(amax)), quant(X, amax))
    assert same(fq.modelopt.scaled_e4m3(Array.of(X), 3.0), fq.modelopt.scaled_e4m3(X, 3.0))
    y, back = quant(Array.of(X), 1.5, grad_y=True)
    assert same(back(Array.of(X + 1)), quant(X, 1.5, grad_y=X + 1)[1]) and same(y, quant(X, 1.5))
    assert same(quant(Array.of(X), 1.5, grad_y=Array.of(X))[1], quant(X, 1.5, grad_y=X)[1])


def test_who_writes_to_an_input_later_waits():
    x = Array.of(X)
    calibrator = fq.make_calibrator("max")
    calibrator.collect(x)
    x.write(X * 100)
    theirs[0].wait()
    assert calibrator.compute_amax() == np.abs(X).max()
    y = quant(x, 2.0)
    x.write(X)
    assert same(y, quant(X * 100, 2.0))


def test_memory_is_given_out_again_after_it_was_read():
    y = quant(Array.of(X), 2.0)
    read = y.read_later()  # nobody has waited for it
    del y
    other = fq.Tensor.from_array(Array.of(X * 3))
    assert (quant(other, 2.0).numpy() == quant(X * 3, 2.0)).all()  # waits for the library alone
    assert (read() == quant(X, 2.0)).all()


def test_nothing_is_held_on_to():
    before = len(lent)
    for _ in range(100):
        quant(Array.of(X), 2.0)
        with pytest.raises(fq.ArgumentError):
            quant(Array.of(X), np.ones(5, np.float32))
    assert len(lent) == before


def test_a_network_learns_on_their_memory():
    x, dy = X[:16, :8], X[:16, 8:11]
    model, here = [fq.model("mlp", [8], 3, options={"hidden": [16]}, seed=1).quantize("int8") for _ in range(2)]
    for each in (model, here):
        each.calibrate(X[:, :8].copy(), samples=0)
    assert model.to("cuda:0").device == "cuda:0"
    arrays = {name: Array.of(value) for name, value in model.state_dict().items()}
    model.share_parameters(arrays)
    for name, array in arrays.items():  # a step of an optimizer, in their stream
        array.write(here.state_dict()[name] * 0.5)
    here.load_state_dict({name: value * 0.5 for name, value in here.state_dict().items()})
    model.share_parameters(arrays)
    (y, recording), (expected, of_here) = model.record(Array.of(x), True), here.record(x.copy(), True)
    assert same(y, expected)  # codes have the same bits anywhere
    (grad_x, gradients), (own_x, own) = recording.backward(Array.of(dy)), of_here.backward(dy.copy())
    assert np.allclose(grad_x.numpy(), own_x, rtol=1e-5, atol=1e-6)
    for name, gradient in own.items():  # sums of floats in another order
        assert np.allclose(gradients[name].numpy(), gradient, rtol=1e-5, atol=1e-5), name
    assert model.evaluate((Array.of(x), np.zeros(16, np.int64)))["count"] == 16


def test_what_lies_elsewhere_is_refused():
    model = fq.model("mlp", [8], 3, options={"hidden": [16]})
    with pytest.raises(fq.ArgumentError, match="cuda:0"):
        model(Array.of(X[:, :8]))
    with pytest.raises(fq.BackendError, match="cuda:3 is not there"):
        model.to("cuda:3")
    with pytest.raises(fq.ArgumentError, match="'gpu'"):
        model.to("gpu")


def test_the_tensor_of_a_gpu_is_copied_to_the_host():
    tensor = fq.Tensor.from_array(Array.of(X))
    assert tensor.device == "cuda:0" and tensor.numpy().tobytes() == X.tobytes()
