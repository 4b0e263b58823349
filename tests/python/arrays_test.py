"""Arrays as arguments and results: no copies; arrays that do not fit are rejected by name."""
import gc
import threading

import fakequant as fq
import numpy as np
import pytest
from exchange_table import give_table, lent

quant = fq.modelopt.fake_tensor_quant


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_values():
    x = np.linspace(-3, 3, 25, dtype=np.float32)
    y = quant(x, 2.5)
    scale = np.float32(127) / np.float32(2.5)
    assert y.dtype == np.float32 and y.shape == x.shape
    assert np.array_equal(y, np.clip(np.round(x * scale), -127, 127) / scale)


def test_gradient():
    x = np.array([-3, -1, 0, 1, 3], np.float32)
    y, dx = quant(x, 2.0, grad_y=np.full(5, 2, np.float32))
    assert np.array_equal(y, quant(x, 2.0)) and dx.tolist() == [0, 2, 2, 2, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_type_stays(dtype):
    assert quant(np.ones((2, 3), dtype), 1.0).dtype == dtype


def test_does_not_copy():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = fq.Tensor.from_array(x)
    assert np.shares_memory(tensor.numpy(), x)
    assert tensor.shape == (2, 3) and tensor.dtype == "f32"
    x[0, 0] = 7
    assert tensor.numpy()[0, 0] == 7


def test_arrays_keep_their_tensor_alive():
    tensor = fq.Tensor.from_array(np.full(1 << 16, 3, np.float32))
    view = tensor.numpy()
    del tensor
    gc.collect()
    assert (view == 3).all()


def test_supports_channels_last_and_read_only():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(quant(last, 20.0), quant(x, 20.0))
    x.flags.writeable = False
    before = x.copy()
    quant(x, 20.0)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("x, words", [
    (np.ones((4, 4), np.float32).T[::2], "contiguous"),
    (np.ones(4, np.float32)[::-1], "contiguous"),
    (np.ones(4, np.complex64), "complex64"),
    (np.ones(4, np.uint32), "uint32"),
    (np.ones(4, np.float32).astype(">f4"), "x is a numpy.ndarray"),
    (np.array(["a"]), "x is a numpy.ndarray"),
    (np.array([object()]), "x is a numpy.ndarray"),
    ("text", "x is a str"),
    ([1.0, 2.0], "x is a list"),
    ({}, "x is a dict"),
    (np.frombuffer(b"\0" * 17, np.uint8)[1:].view(np.float32), "aligned"),
    (np.ones(3, np.int32), "i32: use f32"),
])
def test_rejects_unsupported_input_by_name(x, words):
    with pytest.raises(fq.ArgumentError, match="fake_tensor_quant.*") as caught:
        quant(x, 1.0)
    assert words in str(caught.value) and isinstance(caught.value, ValueError)


@pytest.mark.skipif(fq.cuda_device_count() > 0, reason="there is a GPU")
def test_rejects_gpu_tensors_without_a_gpu():
    class OnGpu:
        def __init__(self, shape):
            self.pointer, self.shape = 1 << 20, shape
    give_table(OnGpu, lambda: 0)
    network = fq.model("mlp", [4], 2)
    for call in (lambda x: quant(x, 1.0), lambda x: quant(np.ones((2, 4), np.float32), x), network, fq.Tensor.from_array,
                 lambda x: network.calibrate(x), lambda x: network.load_state_dict(dict.fromkeys(network.state_dict(), x))):
        with pytest.raises(fq.ArgumentError, match="is on cuda:0, and this build of fakequant has no usable GPU: use x.cpu"):
            call(OnGpu((2, 4)))
    with pytest.raises(fq.BackendError, match="cuda"):
        network.to("cuda")
    assert not lent and network.to("cpu").device == "cpu"


def test_names_invalid_arguments():
    x = np.ones(3, np.float32)
    for arguments, words in [({"amax": -1.0}, "amax"), ({"amax": "b"}, "amax is a str"),
                             ({"amax": [1, None]}, "amax is a list"), ({"amax": 1.0, "num_bits": 99}, "99 bits"),
                             ({"amax": 1.0, "bias": "3"}, "bias is a str"),
                             ({"amax": 1.0, "grad_y": np.ones(4, np.float32)}, "seed is .4., the value .3.")]:
        with pytest.raises(fq.ArgumentError, match=words):
            quant(x, **arguments)


def test_supports_zero_sizes_and_scalars():
    assert quant(np.empty((0, 3), np.float32), 1.0).shape == (0, 3)
    assert quant(np.float32(0.5).reshape(()), 1.0).shape == ()


def test_errors_have_classes():
    natural = {"ArgumentError": ValueError, "FileError": OSError, "NumericError": ArithmeticError,
               "BackendError": RuntimeError, "SystemError": OSError}
    for name, base in natural.items():
        assert issubclass(getattr(fq, name), (fq.Error,)) and issubclass(getattr(fq, name), base)


def test_survives_random_arrays():
    random = np.random.default_rng(1)
    kinds = [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint8, np.complex128, bool, "M8[s]", "U3"]
    taken = rejections = 0
    for _ in range(500):
        shape = tuple(random.integers(0, 4, random.integers(0, 6)))
        x = np.zeros(shape, kinds[random.integers(len(kinds))])
        for axis in range(x.ndim):
            if random.random() < 0.3:
                x = np.flip(x, axis) if random.random() < 0.5 else np.swapaxes(x, 0, axis)
        if x.ndim and random.random() < 0.2:
            x = x[..., ::2]
        try:
            y = quant(x, 1.0)
        except fq.ArgumentError:
            rejections += 1
            continue
        taken += 1
        assert y.shape == x.shape and y.dtype == x.dtype
    assert taken > 50 and rejections > 50, (taken, rejections)


def test_ten_thousand_calls_do_not_leak():
    x = np.ones(4096, np.float32)
    for _ in range(500):
        quant(x, 1.0, grad_y=x)
    before = resident()
    for _ in range(10_000):
        quant(x, 1.0, grad_y=x)
        with pytest.raises(fq.ArgumentError):
            quant(x, -1.0)
    assert resident() - before < 8 << 20  # 10,000 leaked arrays would be 160 MB


def test_supports_threads():
    x = np.random.default_rng(0).standard_normal((64, 1000)).astype(np.float32)
    expected, wrong = quant(x, 2.0), []

    def work():
        for _ in range(20):
            if not np.array_equal(quant(x, 2.0), expected):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_supports_types_unknown_to_numpy():
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    codes = fq.torch_ref.cast_float8(x)
    assert isinstance(codes, fq.Tensor) and codes.dtype == "f8_e4m3" and codes.bytes().dtype == np.uint8
    with pytest.raises(fq.ArgumentError, match="numpy has no type for f8_e4m3"):
        codes.numpy()
    again = fq.Tensor.from_bytes(codes.bytes(), "float8_e4m3fn", codes.shape)
    assert np.array_equal(fq.torch_ref.decode_float8(again), fq.torch_ref.decode_float8(codes))
    with pytest.raises(fq.ArgumentError, match="bytes"):
        fq.Tensor.from_bytes(np.zeros(3, np.uint8), "bf16", [2])
    with pytest.raises(fq.ArgumentError, match="element type"):
        fq.torch_ref.cast_float8(x, "float7")


def test_build():
    assert fq.__version__.count(".") == 2 and fq.build_info().startswith("cpu, codes multiplied as ")
