"""Arrays of a GPU in streams of their owner's, on the simulated device of tests/simulated or on a GPU: values are wrong where an
order is missing."""
import numpy as np
import pytest
from cuda_arrays import Array, Default, fq, simulated, theirs
from exchange_table import lent

X = np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)
quant = fq.modelopt.fake_tensor_quant


@pytest.fixture(autouse=True, params=["own", "default"])
def stream(request):
    """A stream of its own and CUDA's default one, whose address is 0, as torch's is at first."""
    kept = theirs[0]
    if request.param == "default":
        theirs[0] = Default()
    yield
    theirs[0].wait()
    theirs[0] = kept


def same(array, values):
    return np.array_equal(array.numpy(), values)


def test_counts_devices():
    assert fq.cuda_device_count() == 1 if simulated else fq.cuda_device_count() >= 1


def test_functions_wait_for_their_inputs():
    assert type(quant(Array.of(X), 2.0)) is Array
    assert same(quant(Array.of(X), 2.0), quant(X, 2.0))
    amax = np.abs(X).max(0, keepdims=True)
    assert same(quant(Array.of(X), Array.of(amax)), quant(X, amax))
    assert same(fq.modelopt.scaled_e4m3(Array.of(X), 3.0), fq.modelopt.scaled_e4m3(X, 3.0))
    assert same(fq.modelopt.scaled_e4m3(Array.of(X), Array.of(amax)), fq.modelopt.scaled_e4m3(X, amax))
    y, back = quant(Array.of(X), 1.5, grad_y=True)
    assert same(back(Array.of(X + 1)), quant(X, 1.5, grad_y=X + 1)[1]) and same(y, quant(X, 1.5))
    assert same(quant(Array.of(X), 1.5, grad_y=Array.of(X))[1], quant(X, 1.5, grad_y=X)[1])


def test_later_writers_to_an_input_wait():
    x = Array.of(X)
    calibrator = fq.make_calibrator("max")
    calibrator.collect(x)
    x.write(X * 100)
    theirs[0].wait()
    assert calibrator.compute_amax() == np.abs(X).max()
    y = quant(x, 2.0)
    x.write(X)
    assert same(y, quant(X * 100, 2.0))


def test_memory_is_reused_after_its_readers():
    y = quant(Array.of(X), 2.0)
    read = y.read_later()  # not synchronised yet
    del y
    other = fq.Tensor.from_array(Array.of(X * 3))
    assert (quant(other, 2.0).numpy() == quant(X * 3, 2.0)).all()  # waits for the library alone
    assert (read() == quant(X, 2.0)).all()


def test_releases_memory():
    before = len(lent)
    for _ in range(100):
        quant(Array.of(X), 2.0)
        with pytest.raises(fq.ArgumentError):
            quant(Array.of(X), np.ones(5, np.float32))
    assert len(lent) == before


def test_network_learns_on_gpu_arrays():
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


def test_rejects_tensors_on_another_device():
    model = fq.model("mlp", [8], 3, options={"hidden": [16]})
    with pytest.raises(fq.ArgumentError, match="cuda:0"):
        model(Array.of(X[:, :8]))
    other = f"cuda:{fq.cuda_device_count() + 2}"
    with pytest.raises(fq.BackendError, match=f"{other} is not there"):
        model.to(other)
    with pytest.raises(fq.ArgumentError, match="'gpu'"):
        model.to("gpu")


def test_copies_a_gpu_tensor_to_the_host():
    tensor = fq.Tensor.from_array(Array.of(X))
    assert tensor.device == "cuda:0" and tensor.numpy().tobytes() == X.tobytes()
