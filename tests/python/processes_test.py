"""Other processes and the end of this one: pickles, forks, daemon threads that compute while the interpreter ends."""
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys

import fakequant as fq
import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])

RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 1, 8, 8)).astype(np.float32)
Y = RNG.integers(0, 10, 96)
PATIENCE = 60 * float(os.environ.get("FAKEQUANT_TEST_PATIENCE", "1"))


def script(text, *arguments, threads=2):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
    return subprocess.run([sys.executable, "-c", text, *arguments], env=environment, capture_output=True, text=True,
                          timeout=PATIENCE)


def cnn(**options):
    return fq.model("cnn", (1, 8, 8), 10, options={"widths": [8, 8, 8], "features": 16}, **options)


def quantized():
    model = cnn().quantize("int8")
    model.calibrate((X, Y))
    return model


# What pickles.


def compressed():
    model = quantized()
    model.compress()
    return model


def partly_quantized():
    model = quantized()
    model.disable_quantizer("*input_quantizer")
    return model


def partly_frozen():
    model = cnn()
    model.eval()
    model.set_training([path for path in model.training_modes() if path][:1], True)
    return model


@pytest.mark.parametrize("make", [cnn, quantized, compressed, partly_quantized, partly_frozen])
def test_models_pickle_with_their_state(make):
    model = make()
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(again.predict(X), model.predict(X))
        assert again.quantizers() == model.quantizers()
        assert again.training_modes() == model.training_modes()
        assert (again.device, again.sample_shape, again.classes) == (model.device, model.sample_shape, model.classes)


def data_sets():
    path = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "data", "digits.h5")
    pair = fq.TensorDataset(X, Y)
    return (fq.dataset(path), fq.dataset(path, split="test", labels=False), pair, fq.TensorDataset(X), pair[10:40],
            fq.Subset(pair, [1, 5, 7]), fq.some_samples(fq.dataset(path), 20, 3)[::2], fq.data_of((X, Y)), fq.data_of(X))


def test_data_sets_pickle(tmp_path, monkeypatch):
    for data in data_sets():
        again = pickle.loads(pickle.dumps(data))
        assert len(again) == len(data) and again.classes == data.classes and again.class_names == data.class_names
        for one, other in zip(data.read(range(len(data))), again.read(range(len(data)))):
            assert np.array_equal(one, other)
    relative = os.path.relpath(os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "data", "digits.h5"))
    sent = pickle.dumps(fq.dataset(relative))
    monkeypatch.chdir(tmp_path)
    assert len(pickle.loads(sent)) == len(fq.dataset(os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "data", "digits.h5")))


def test_values_pickle():
    for descriptor in (fq.QuantDescriptor(), fq.QuantDescriptor(num_bits=(4, 3), axis=0, amax=[1.0, 2.0]),
                       fq.QuantDescriptor(num_bits=4, block_sizes={"-1": 32}, unsigned=False)):
        assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    tensor = fq.Tensor.from_bytes(np.arange(6, dtype=np.uint8), "f8_e4m3", (2, 3))
    again = pickle.loads(pickle.dumps(tensor))
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape) and np.array_equal(again.bytes(), tensor.bytes())
    w = RNG.standard_normal((4, 64)).astype(np.float32)
    for packed in (fq.modelopt.nvfp4_qtensor(w), fq.modelopt.int8_qtensor(w, axis=[0]), fq.modelopt.nf4_qtensor(w, 64, 2)):
        assert np.array_equal(pickle.loads(pickle.dumps(packed)).dequantize(), packed.dequantize())
    with pytest.raises(fq.FileError) as caught:
        fq.load("nowhere.h5")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.path) == (fq.FileError, str(caught.value), caught.value.path)


def test_every_value_class_is_tested_or_rejected():
    """A new class either pickles, and has a test above, or says that it does not."""
    classes = {value for value in vars(fq._fakequant).values() if isinstance(value, type) and not issubclass(value, Exception)}
    pickled = {cls for cls in classes if "__reduce__" in vars(cls) or "__getstate__" in vars(cls)}
    assert {cls.__name__ for cls in pickled} == {"Model", "Dataset", "QuantDescriptor", "Tensor"}
    with pytest.raises(TypeError):
        pickle.dumps(fq.make_calibrator("max"))


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_torch_loaders_read_in_other_processes(start):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(fq.TensorDataset(X, Y), batch_size=32, num_workers=2, multiprocessing_context=start, timeout=PATIENCE)
    batches = list(loader)
    assert np.array_equal(np.concatenate([x for x, _ in batches]), X)
    assert np.array_equal(np.concatenate([y for _, y in batches]), Y)


def test_functions_pickle():
    for function in (fq.load, fq.modelopt.fake_tensor_quant, fq.QuantDescriptor.from_json):
        assert pickle.loads(pickle.dumps(function)) is function


# Forks.


def predicted(model):
    return model.predict(X)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pools_compute(start):
    model = quantized()
    want = model.predict(X)
    with multiprocessing.get_context(start).Pool(2) as pool:
        for found in pool.map_async(predicted, [model] * 3).get(PATIENCE):
            assert np.array_equal(found, want)


FORK = """
import os, sys, threading
import numpy as np, fakequant as fq
x = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype("float32")
model, quantized = fq.model("cnn", (1, 8, 8), 10), fq.model("cnn", (1, 8, 8), 10).quantize("int8")
quantized.calibrate(x)
if sys.argv[1] == "threads":  # computing while this one forks
    own = fq.model("mlp", (1, 8, 8), 10)
    threading.Thread(target=lambda: [own.predict(x) for _ in iter(int, 1)], daemon=True).start()
y = np.arange(64) % 10
want = [m.predict(x) for m in (model, quantized)]
model.fit((x, y), epochs=1, progress=False)
trained = model.predict(x)
for _ in range(4):
    child = os.fork()
    if child == 0:
        again = fq.model("cnn", (1, 8, 8), 10)
        again.fit((x, y), epochs=1, progress=False)
        good = [np.array_equal(a, b) for a, b in ((again.predict(x), trained), (quantized.predict(x), want[1]))]
        os._exit(0 if all(good) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(model.predict(x), trained)
"""


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("others", ["alone", "threads"])
def test_forked_child_computes_the_same_bits(threads, others):
    done = script(FORK, others, threads=threads)
    assert done.returncode == 0, done.stderr


# The end of the interpreter.

END = """
import sys, threading, time
import numpy as np, fakequant as fq
x, y = np.random.default_rng(0).standard_normal((512, 1, 8, 8)).astype("float32"), np.arange(512) % 10
ready = threading.Event()

def work():
    model = fq.model("cnn", (1, 8, 8), 10)
    if sys.argv[1] != "calibrate":
        ready.set()
    while True:
        if sys.argv[1] == "fit":
            model.fit((x, y), epochs=500, progress=False, on_step=lambda report: None)
        if sys.argv[1] == "predict":
            model.predict(x)
        if sys.argv[1] == "call":
            model(x)
        if sys.argv[1] == "evaluate":
            model.evaluate((x, y))
        if sys.argv[1] == "calibrate":
            fq.model("cnn", (1, 8, 8), 10).quantize("int8").calibrate((x, y))
            ready.set()

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
ready.wait()
time.sleep(0.2)
"""


@pytest.mark.parametrize("kind", ["fit", "predict", "call", "evaluate", "calibrate"])
def test_daemon_threads_compute_while_the_interpreter_ends(kind):
    done = script(END, kind)
    assert (done.returncode, done.stderr) == (0, "")


def test_ending_thread_continues_to_compute():
    done = script("import atexit\nimport numpy as np\nm = None\n@atexit.register\ndef last():\n"
                  "    print(m.predict(np.zeros((2, 4), 'float32')).shape)\n"
                  "import fakequant as fq\nm = fq.model('mlp', (4,), 3)\n")
    assert (done.returncode, done.stdout) == (0, "(2, 3)\n"), done


@pytest.mark.parametrize("settings, threads", [({"OMP_THREAD_LIMIT": "1"}, 1), ({"OMP_THREAD_LIMIT": "2"}, 2),
                                               ({"OMP_MAX_ACTIVE_LEVELS": "0"}, 1), ({"OMP_DYNAMIC": "true", "OMP_THREAD_LIMIT": "3"}, 3)])
def test_openmp_may_give_fewer_threads(settings, threads, tmp_path):
    train = """
import sys, threading
import numpy as np, fakequant as fq
x, y = np.random.default_rng(0).standard_normal((32, 1, 8, 8)).astype("float32"), np.arange(32) % 10
def work(name):
    for kind, options in (("mlp", {}), ("cnn", {"widths": [8, 8, 8], "features": 16}), ("vit", {"layers": 1})):
        model = fq.model(kind, (1, 8, 8), 10, options=options)
        model.fit((x, y), epochs=1, batch_size=16, progress=False)
        model.qat((x, y), "int8", epochs=1, batch_size=16, quiet=True, progress=False)
        np.save(f"{name}_{kind}.npy", model.predict(x))
threads = [threading.Thread(target=work, args=(f"{sys.argv[1]}{i}",)) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    runs = {"limited": {"OMP_NUM_THREADS": "4", **settings}, "free": {"OMP_NUM_THREADS": str(threads)}}
    for name, own in runs.items():
        done = subprocess.run([sys.executable, "-c", train, name], env=dict(environment, OMP_WAIT_POLICY="passive", **own),
                              cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
    for kind in ("mlp", "cnn", "vit"):
        found = [np.load(tmp_path / f"{name}{i}_{kind}.npy") for name in runs for i in (0, 1)]
        assert all(np.array_equal(found[0], other) for other in found), (kind, settings)
