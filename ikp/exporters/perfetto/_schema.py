"""The parts of Perfetto's trace format that the vectorised packets use, by their names there.

The numbers are those of ``perfetto_trace.proto``; a test compares them with the ``perfetto``
package. Also here: what this writer chose freely, which the reader must know.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final


class Packet(IntEnum):
    """Fields of ``Trace`` (the first) and ``TracePacket``."""

    PACKET = 1
    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    COMPRESSED_PACKETS = 50
    GPU_RENDER_STAGE_EVENT = 53
    TRACK_DESCRIPTOR = 60
    GPU_INFO = 128


COLUMNS: Final = 26987
"""Field of ``TracePacket`` that is ours: Perfetto's own are below 2,000, and it skips what it does
not know."""


class Event(IntEnum):
    """Fields of ``TrackEvent``."""

    DEBUG_ANNOTATIONS = 4
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    CATEGORIES = 22
    NAME = 23
    COUNTER_VALUE = 30
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48
    CORRELATION_ID = 52


class RenderStage(IntEnum):
    """Fields of ``GpuRenderStageEvent``, and of the messages in it."""

    EVENT_ID = 1
    DURATION = 2
    CONTEXT = 5
    GPU_ID = 11
    HW_QUEUE_IID = 13
    STAGE_IID = 14
    KERNEL_IID = 19
    LAUNCH = 21


class ComputeLaunch(IntEnum):
    """Fields of ``GpuRenderStageEvent.ComputeKernelLaunch``."""

    GRID_SIZE = 1
    WORKGROUP_SIZE = 2
    ARGS = 3


class ComputeArg(IntEnum):
    """Fields of ``GpuRenderStageEvent.ExtraComputeArg``."""

    NAME = 2
    UINT_VALUE = 4


class Interned(IntEnum):
    """Fields of ``InternedData`` that name kernels; the last is of its extension for GPUs."""

    GRAPHICS_CONTEXTS = 23
    GPU_SPECIFICATIONS = 24
    COMPUTE_KERNELS = 1000


class Gpu(IntEnum):
    """Fields of ``GpuInfo.Gpu``."""

    NAME = 1
    VENDOR = 2


class Descriptor(IntEnum):
    """Fields of ``TrackDescriptor``."""

    UUID = 1
    NAME = 2
    PARENT_UUID = 5
    COUNTER = 8
    CHILD_ORDERING = 11
    SIBLING_ORDER_RANK = 12
    DESCRIPTION = 14
    SIBLING_MERGE_BEHAVIOR = 15


CORRELATED: Final = "correlation_id"
"""The argument of a trace that is Perfetto's own: events with one number have one colour."""
EXPLICIT, MERGE_NONE = 3, 2
"""Of tracks: children are in the order of their ranks, and none is merged with its sibling."""


class EventType(IntEnum):
    """Values of ``TrackEvent.type``."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class Annotation(IntEnum):
    """Fields of ``DebugAnnotation``: a named argument of an event."""

    NAME_IID = 1
    BOOL_VALUE = 2
    UINT_VALUE = 3
    INT_VALUE = 4
    DOUBLE_VALUE = 5
    STRING_VALUE = 6
    NAME = 10
    DICT_ENTRIES = 11
    ARRAY_VALUES = 12
    STRING_VALUE_IID = 17


SEQUENCE: Final = 1
"""All packets are of one sequence: names are interned once, packets load faster. In a joined file
another one may have this id: the first packet clears what is known of it."""
CLEARED_STATE, NEEDS_STATE = 1, 2
"""Sequence flags: of the first packet, and of all that rely on it."""
REALTIME: Final = 1
"""Id of the clock that shows Unix time."""
STEPS: Final = 97
"""Id of the clock that packets are on. It counts from packet to packet, which only a clock of one
sequence may: those have ids from 64 to 127, of which Perfetto's own library uses the first two. It
shows Unix time, in every file."""
FIRST_GLOBAL_CLOCK: Final = 128
"""Smaller ids of clocks are Perfetto's own, or one sequence's: another file may have it, too."""

MAX_TRACKS: Final = 1 << 28
"""More than a trace can have."""


class Arg(IntEnum):
    """Interned names of arguments, which the user reads in small letters."""

    BLOCK = 1
    CYCLES = 2
    TICKS = 3
    PAYLOAD = 4
    LAUNCH = 5
    SM = 6
    WARPS = 7
    WARP = 8
    SLOT = 9
    ROLE = 10
    START_OFFSET_NS = 11
    END_OFFSET_NS = 12
    ATTEMPTED = 13
    KEPT = 14
    FINISHED = 15
    TOTALS = 16
    COUNT = 17
    INSTANTS = 18
    TOTAL_NS = 19
    SHARE = 20
    RECORDED = 21


FIRST_OWN_ARG: Final = 32
"""Interned name of the first argument that a trace has beside those. The others follow, and then
the regions' names where they name totals."""
FORMAT: Final = 3
"""Version of the layout below."""
FORMAT_WITH_OTHERS: Final = 4
"""The same, of files that hold warps that left no records, which readers of 3 know nothing of."""
FORMAT_FOLDED: Final = 5
"""The same, of files with many launches, some of whose columns are folded."""
COLUMNAR: Final = (FORMAT, FORMAT_WITH_OTHERS, FORMAT_FOLDED)
"""Versions that the reader knows; it refuses others."""
ROWS: Final = "rows_of_launches"
SHARED: Final = "shared"
"""What the head of a file's columns says, where launches of a kernel share a viewer's rows."""
Facts = dict[str, Any]
"""What a trace says of itself: plain values by name, nested as in JSON."""
SUMMARY: Final = "ikp trace"
"""Name of the instant that holds what concerns the whole file, on a track of its own."""
