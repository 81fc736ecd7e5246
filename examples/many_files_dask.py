"""One table of many trace files, counted by the workers of a Dask cluster.

Run: ``python examples/many_files_dask.py step.*.pftrace``. Without an address it starts a cluster
of two processes on this machine; ``DASK_SCHEDULER=tcp://head:8786`` takes another, whose workers
must see the files under the same paths and have ``ikp`` installed. Files that can't be read are
left out and named.
"""

import os
import sys

from distributed import Client

import ikp


def main(paths: list[str]) -> ikp.many.Tally:
    """Print how long each region took on each rank; return what was counted."""
    with connected() as client:
        found = ikp.many.tally_on_dask(paths, client, by="rank", keep_going=True)
    print(found.stats())
    return found


def connected() -> Client:
    """Return a client of the cluster that the environment names, or of two processes here."""
    if address := os.environ.get("DASK_SCHEDULER"):
        return Client(address)
    return Client(n_workers=2, threads_per_worker=1, dashboard_address=":0")


if __name__ == "__main__":  # worker processes import this file
    main(sys.argv[1:])
