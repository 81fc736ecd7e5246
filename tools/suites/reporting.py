"""A plugin of pytest that writes what became of each test, at once: a crash loses nothing.

Plain and recorded runs load it alike, with ``-p reporting``: it imports nothing of ikp.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FILE, SAMPLE, LIMIT = "SUITES_FILE", "SUITES_SAMPLE", "SUITES_LIMIT"
"""Variables: where to write, one test in how many runs, and seconds for each."""


class OverTime(Exception):  # noqa: N818 - its name is what the outcome is called
    """A test took too long. An Exception, as the limits of other plugins raise."""


@dataclass(eq=False, slots=True)  # pluggy wants it hashable
class Reporter:
    """The plugin itself."""

    file: Path
    sample: int
    limit: float
    process: int = field(default_factory=os.getpid)

    def _write(self, **line: object) -> None:
        if os.getpid() == self.process:  # a test may fork
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep one test in so many, the same ones in each run."""
        kept = [each for each in items if zlib.crc32(each.nodeid.encode()) % self.sample == 0]
        config.hook.pytest_deselected(items=[each for each in items if each not in set(kept)])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Interrupt a test that takes too long, as test suites do: by a signal's handler."""

        def over(*_: object) -> None:
            raise OverTime(f"longer than {self.limit:g} s")

        self._write(begun=item.nodeid)
        before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note where a test took too long."""
        report = yield
        over = call.excinfo is not None and call.excinfo.errisinstance(OverTime)
        report.user_properties.append(("over", over))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write one phase of a test."""
        over = dict(report.user_properties).get("over", False)
        expected = " as expected" if hasattr(report, "wasxfail") else ""
        self._write(
            test=report.nodeid,
            when=report.when,
            outcome="timed out" if over else report.outcome + expected,
            text=report.longreprtext,
            out=report.capstdout,
            err=report.capstderr,
            log=report.caplog,
            seconds=report.duration,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what can't be collected."""
        if report.failed or report.skipped:
            self._write(
                test=report.nodeid,
                when="collect",
                outcome=report.outcome,
                text=report.longreprtext,
                out="",
                err="",
                log="",
                seconds=0,
            )

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Write a warning as pytest's summary has it."""
        self._write(
            warning=str(warning_message.message),
            category=warning_message.category.__name__,
            place=f"{warning_message.filename}:{warning_message.lineno}",
            when=when,
            test=nodeid,
        )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write that pytest came to its end."""
        self._write(status=int(exitstatus))


def pytest_configure(config: pytest.Config) -> None:
    """Take the variables, before a test sees them."""
    reporter = Reporter(
        Path(os.environ.pop(FILE)),
        int(os.environ.pop(SAMPLE)),
        float(os.environ.pop(LIMIT)),
    )
    config.pluginmanager.register(reporter)
