"""float32 arrays in memory of CUDA's own, without torch: on the simulated device where the module was linked with it (work is done
when something waits for it and no sooner), else on a GPU, where each write is late by a wait in its stream."""
import ctypes as c
import os
import sys

import numpy as np
import pytest

sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)  # the library looks for cuBLASLt among the loaded libraries
import fakequant as fq  # noqa: E402
from exchange_table import give_table  # noqa: E402

TO_DEVICE, TO_HOST, LATE = 1, 2, 2000  # LATE in microseconds


def _runtime():
    """CUDA's runtime, and whether it is the simulated one, which the module has inside."""
    module = c.CDLL(fq._fakequant.__file__)
    if hasattr(module, "cudaStreamCreateWithFlags"):
        return module, True
    if not fq.cuda_device_count():
        pytest.skip("neither a simulated device nor a GPU", allow_module_level=True)
    try:
        import torch  # noqa: F401  brings the runtime along
    except ImportError:
        pass
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return c.CDLL(name), False
        except OSError:
            pass
    pytest.skip("CUDA's runtime was not found as a shared library", allow_module_level=True)


_cuda, simulated = _runtime()
_libc = c.CDLL(None)


def call(name, *arguments):
    status = getattr(_cuda, name)(*arguments)
    assert status == 0, f"{name}: {status}"


class Stream:
    def __init__(self):
        self.address = c.c_void_p()
        call("cudaStreamCreateWithFlags", c.byref(self.address), 1)

    def wait(self):
        call("cudaStreamSynchronize", self.address)


class Default:
    """CUDA's default stream, as torch's is at first."""
    address, wait = c.c_void_p(None), Stream.wait


class Memory:
    """One block of the device, apart from the library's: the simulated pool hands blocks on from stream to stream at once."""

    def __init__(self, size):
        self.end, block = size, c.c_void_p()
        if simulated:
            call("cudaMallocFromPoolAsync", c.byref(block), c.c_size_t(size), None, theirs[0].address)
        else:
            call("cudaMalloc", c.byref(block), c.c_size_t(size))
        self.first, self.taken = block.value, 0

    def take(self, count):
        begin, self.taken = self.taken, self.taken + -(-count // 256) * 256
        assert self.taken <= self.end
        return self.first + begin


theirs = [Stream()]  # the current one
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
        pinned = _pinned(values.nbytes)
        c.memmove(pinned, values.ctypes.data, values.nbytes)
        if not simulated:
            call("cudaLaunchHostFunc", theirs[0].address, _libc.usleep, c.c_void_p(LATE))
        self._copy(self.pointer, pinned, values.nbytes, TO_DEVICE)

    def read_later(self):
        """The values that the stream copies once it is synchronised."""
        out = np.empty(self.shape, np.float32)
        pinned = _pinned(out.nbytes)
        self._copy(pinned, self.pointer, out.nbytes, TO_HOST)
        return lambda: (theirs[0].wait(), c.memmove(out.ctypes.data, pinned, out.nbytes), out)[2]

    def numpy(self):
        return self.read_later()()

    def _copy(self, to, source, count, kind):
        pointer = lambda at: at if isinstance(at, c.c_void_p) else c.c_void_p(at)  # noqa: E731
        call("cudaMemcpyAsync", pointer(to), pointer(source), c.c_size_t(count), kind, theirs[0].address)

    def __del__(self):
        self._free()


def _pinned(size):
    """Memory of the host that copies do not wait for, kept to the end."""
    out = c.c_void_p()
    call("cudaHostAlloc", c.byref(out), c.c_size_t(size), 0)
    return out


give_table(Array, lambda: theirs[0].address.value)
