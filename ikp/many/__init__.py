"""Statistics and conversion of many trace files, of many runs and ranks, one file at a time.

Each worker holds one file in memory. It reads and counts the file, which is the map; the counts are
added up, which is the merge. Both are plain functions, so they run anywhere::

    ikp.many.table(paths, by="rank", workers=8)  # both, on this machine: a DataFrame
    ikp.many.merge(map(ikp.many.tally, paths)).stats()  # the same by hand: a table to print
    ikp.many.tally_on_dask(paths, client)  # the same on a cluster

``to_dataset`` writes files as one partitioned Parquet data set.
"""

from __future__ import annotations

from ikp.analysis.tally import Lost, Tally
from ikp.analysis.tallying import merge
from ikp.many.datasets import Written, to_dataset
from ikp.many.over_files import table, tally, tally_files, tally_on_dask

__all__ = [
    "Lost",
    "Tally",
    "Written",
    "merge",
    "table",
    "tally",
    "tally_files",
    "tally_on_dask",
    "to_dataset",
]
