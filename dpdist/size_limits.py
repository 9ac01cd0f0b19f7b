"""From which sizes on a path is taken that needs less memory: one settings object, passed in with the store and the domain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes at which the way of computing changes, and not the results: tests compare both sides of each with small ones.

    One of them, ``streamed_cells``, decides in which order values are measured; the grid's digest says in which.

    A ``Store`` holds the object for everything that is stored, a ``Domain`` for the mathematics over it; both take it along
    to the processes they are sent to.

    Attributes:
        shard_bytes: bytes of a shard of a stored array.
        part_values: values that the function of a scan over a stored vector gets at a time.
        pending_pairs: positions that a sparse count keeps in memory before it writes them.
        slab_bytes: what a slab of a pass takes at most, with its working copies, while its tiles are not small.
        tile_bytes: slabs grow with the vector, as far as memory allows, so that what two passes exchange does not come in smaller parts.
        tiles: that two passes exchange at most before tasks between them put neighbouring ones together.
        export_rows: rows of a published Zarr chunk; each is written by one writer.
        file_rows: rows of a published Parquet file; longer tables are folders of files.
        batch_rows: rows that a table is written in.
        chart_rows: answers of a group that are read for its chart.
        gram_entries: entries of a matrix of queries whose gram is summed from stored blocks, and of a task's part.
        long_steps: steps of a series, or cells of a formula, beyond which strategies go through the store.
        pinched_steps: most steps of the blocks along the diagonal that bound a long series.
        streamed_cells: cells of the one table of a product beyond which it is measured and read in two passes.
        pair_cells: cells up to which all pairs of columns are compared for the L2 sensitivity under replace-one.
        pair_work: operations up to which all pairs of columns are compared for the L1 sensitivity under replace-one.
        factor_entries: entries beyond which a factor's coordinates in the integer basis are not written down.
        listed_values: values, edges or names beyond which they are computed when asked for.
        mapped_bytes: bytes of a file of rows beyond which it is read in blocks, where it lies.
        row_block_bytes: bytes of a block of rows in double precision: in half of it a product reaches 95 % of its rate.
        single_rows: rows of the smallest product that is worth its turn in single precision.
        gram_columns: columns of the smallest block of a gram that is worth a task.
    """

    shard_bytes: int = 32 * 2**20
    part_values: int = 2**21
    pending_pairs: int = 2**22
    slab_bytes: int = 512 * 2**20
    tile_bytes: int = 2**20
    tiles: int = 2**17
    export_rows: int = 2**22
    file_rows: int = 2**22
    batch_rows: int = 100_000
    chart_rows: int = 2**22
    gram_entries: int = 2**23
    long_steps: int = 2**22
    pinched_steps: int = 2**20
    streamed_cells: int = 2**25
    pair_cells: int = 16384
    pair_work: int = 2**33
    factor_entries: int = 2**22
    listed_values: int = 2**20
    mapped_bytes: int = 2**28
    row_block_bytes: int = 2**27
    single_rows: int = 256
    gram_columns: int = 256


SIZES = Sizes()
"""Those of a machine with some GiB a core."""
