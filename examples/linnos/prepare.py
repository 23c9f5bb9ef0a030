"""Names the columns of linnos.csv.gz and says which rows follow one another, for mapping.yaml.

    python examples/linnos/prepare.py linnos.csv.gz linnos.csv

The file has no header. A row is one IO: queue lengths at the four IOs before it (oldest first), the queue length now,
the latencies (us) of the four IOs before it (oldest first), the latency of this one. The next IO's row repeats three of
the four, and this IO in the place of the last: such rows are one `run`, whichever lines they stand on.
"""

import argparse
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from feature_store.errors import InputError

COLUMNS = ("queue_4", "queue_3", "queue_2", "queue_1", "queue_now", "latency_4", "latency_3", "latency_2", "latency_1",
           "latency_us")
# The four IOs before a row's IO, and the four IOs before the next one.
BEFORE = [name for name in COLUMNS if name not in ("queue_now", "latency_us")]
AFTER = ["queue_3", "queue_2", "queue_1", "queue_now", "latency_3", "latency_2", "latency_1", "latency_us"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 where the file is not LinnOS's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="linnos.csv.gz")
    parser.add_argument("output", type=Path, help="where the CSV with a header goes")
    options = parser.parse_args(arguments)
    try:
        table = prepare(options.source)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table.to_csv(options.output, index=False)
    print(f"wrote {len(table)} rows in {table['run'].nunique()} runs", file=sys.stderr)
    return 0


def prepare(source: Path) -> pd.DataFrame:
    """The file's rows in its order, with COLUMNS and `run` (int, from 0).

    Raises:
        InputError: the file is missing or damaged, or a row is not ten whole numbers from 0.
    """
    if not source.is_file():
        raise InputError(f"LinnOS data must be an existing file, got {source}")
    try:
        table = pd.read_csv(source, header=None)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"LinnOS data must be a readable CSV file, got {error} ({source})") from error
    whole = all(pd.api.types.is_integer_dtype(kind) for kind in table.dtypes)
    if table.shape[1] != len(COLUMNS) or not whole or (table < 0).any(axis=None):
        raise InputError(f"LinnOS data must hold rows of {len(COLUMNS)} whole numbers from 0 and no header, "
                         f"got {table.shape[1]} columns ({source})")
    table.columns = pd.Index(COLUMNS)
    return table.assign(run=_runs(table))


def _runs(table: pd.DataFrame) -> np.ndarray:
    """(m,): connected components of the graph with four IOs in a row as nodes, table rows as edges."""
    ends = pd.concat([table[columns].set_axis(range(len(columns)), axis=1) for columns in (BEFORE, AFTER)])
    node = ends.groupby(list(ends.columns), sort=False).ngroup().to_numpy()
    first, second = node[:len(table)], node[len(table):]
    graph = coo_matrix((np.ones(len(table)), (first, second)), shape=(node.max() + 1, node.max() + 1))
    component = connected_components(graph, directed=False)[1][first]
    return np.asarray(pd.factorize(component)[0])


if __name__ == "__main__":
    sys.exit(main())
