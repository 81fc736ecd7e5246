"""Every trace that a test writes is loaded in Perfetto's real trace processor and compared.

``check_trace(path, trace)`` is all that most tests need. It skips the test where node, which runs
the trace processor, is missing: mark such tests with ``tp``.
"""

from tests.trace_processor.check import check_trace
from tests.trace_processor.query import columns
from tests.trace_processor.server import TraceProcessorError, open_trace

__all__ = ["TraceProcessorError", "check_trace", "columns", "open_trace"]
