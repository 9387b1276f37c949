"""One line that says what a long compilation is doing: shown after a second, on a terminal only.

>>> with Progress(patience=0.0, stream=io.StringIO()) as report:       # not a terminal: nothing is ever written
...     report("build", 3, 24)
>>> report.text
'build: 3 of 24'
"""
from __future__ import annotations

import io
import sys
import threading


class Progress:
    """A context manager that is called with ``(stage, done, total)`` as the work goes on.

    `patience` is in seconds; `stream` defaults to the standard error.  The line is erased at the end.
    """

    def __init__(self, patience: float = 1.0, stream: io.TextIOBase | None = None):
        self.stream = sys.stderr if stream is None else stream
        self.patience, self.text = patience, ""
        self._status = self._timer = None
        self._lock = threading.Lock()

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.text = f"{stage}: {done} of {total}" if total else stage
        with self._lock:
            if self._status is not None:
                self._status.update(self._line())

    def __enter__(self) -> Progress:
        if self.stream is not None and self.stream.isatty():
            self._timer = threading.Timer(self.patience, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            status, self._status, self._timer = self._status, None, None
        if status is not None:
            status.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.status import Status
        with self._lock:
            if self._timer is not None:                      # the work may have ended while rich was imported
                self._status = Status(self._line(), console=Console(file=self.stream))
                self._status.start()

    def _line(self):
        from rich.text import Text
        return Text(f"minirelax: {self.text}")
