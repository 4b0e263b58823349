"""Ctrl-C during long calls, on the main thread and on others: they end, and the model is not changed."""
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import fakequant as fq
import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    """More than any of these calls gets through before it is interrupted."""
    return np.zeros((20_000, 3, 32, 32), np.float32), np.zeros(20_000, np.int64)


@pytest.fixture(scope="module")
def model(data):
    model = fq.model("resnet20", [3, 32, 32], 10)
    model.quantize("int8")
    model.calibrate(data[0][:8])
    return model


CALLS = {
    "predict": lambda model, data: model.predict(data),
    "evaluate": lambda model, data: model.evaluate(data),
    "calibrate": lambda model, data: model.calibrate(data, method="entropy"),
    "collect_ranges": lambda model, data: model.collect_ranges(data),
    "sensitivity": lambda model, data: model.sensitivity(data),
    "auto_quantize": lambda model, data: fq.model("resnet20", [3, 32, 32], 10).auto_quantize(data, effective_bits=5, samples=0),
    "calibration_page": lambda model, data: model.calibration_page(data, samples=0),
    "validation": lambda model, data: model.fit((data[0][:64], data[1][:64]), epochs=1, learning_rate=0.0, validation=data),
}


def interrupted(call):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        call()
        timer.join()  # where it ended by itself: fails


@pytest.mark.parametrize("name", CALLS)
def test_interrupts_a_call(model, data, name):
    before, amax = model.predict(data[0][:8]), model.amax()
    interrupted(lambda: CALLS[name](model, data))
    assert {name: str(value) for name, value in model.amax().items()} == {name: str(value) for name, value in amax.items()}
    if name != "validation":  # batch norms have seen a batch
        assert np.array_equal(model.predict(data[0][:8]), before)


@pytest.mark.parametrize("name", ["predict", "sensitivity", "validation"])
def test_interrupts_a_call_on_another_thread(model, data, name):
    """Both the thread that waits and the one that computes."""
    caught = []

    def work():
        try:
            CALLS[name](model, data)
        except KeyboardInterrupt as error:
            caught.append(error)
    with ThreadPoolExecutor(1) as pool:
        interrupted(lambda: pool.submit(work).result())
    assert caught


def test_custom_handlers_take_precedence(model, data):
    """One that raises ends a call of the main thread, one that does not ends none."""
    def alarm(number, frame):
        raise TimeoutError("late")
    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError, match="late"):
            model.predict(data)
    finally:
        signal.signal(signal.SIGALRM, before)
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        rows = model.predict(data[0][:512])
        timer.join()
        assert rows.shape == (512, 10) and seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_restores_the_handler_of_the_process(model, data):
    """Python's own table and the system's: a later Ctrl-C raises as ever."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
