"""Progress bar of a training run, in a terminal or a notebook."""
import sys
import time

_CELLS = 24


def is_notebook():
    """Returns whether a notebook runs this process."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def duration(seconds):
    seconds = int(seconds)
    return f"{seconds // 60}:{seconds % 60:02d}"


class Progress:
    """Prints the report of each step: `fit(on_step=Progress())`. A `with` block ends the line.

    Prints to standard error if it is a terminal or belongs to a notebook, or to `stream`.
    """

    def __init__(self, stream=None):
        self._notebook = stream is None and is_notebook()
        self._stream = stream or (sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None)
        self._shown, self._handle, self._last = 0.0, None, None

    @property
    def shown(self):
        """Whether there is a terminal, a notebook or a stream."""
        return self._notebook or self._stream is not None

    def text(self, report):
        """Returns the line of a report."""
        share = report["step"] / max(1, report["steps"])
        full = int(_CELLS * share)
        bar = "#" * full + "-" * (_CELLS - full)
        return (f"[{bar}] {100 * share:3.0f} %  epoch {report['epoch'] + 1}  loss {report['loss']:.4g}  accuracy "
                f"{100 * report['accuracy']:.1f} %  {report['images_per_second']:.0f} images/s  "
                f"{duration(report['seconds_left'])} left")

    def __call__(self, report):
        now = time.monotonic()
        if not self.shown or (now - self._shown < 0.1 and report["step"] < report["steps"]):
            return
        self._shown, self._last = now, report
        if self._notebook:
            self._display(report)
        else:
            self._stream.write("\r" + self.text(report) + "\x1b[K")
            self._stream.flush()

    def _display(self, report):
        from IPython.display import HTML, display

        page = HTML(f"<progress max={report['steps']} value={report['step']}></progress> "
                    f"{self.text(report).partition('] ')[2]}")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._stream is not None and self._last is not None:
            self._stream.write("\n")
            self._stream.flush()
