"""Histograms that somebody else counted: NumPy and Zarr arrays with one axis for each attribute, read part by part as they were hashed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.errors import InvalidSpec, NoRecords
from dpdist.sources.formats.record_format import Format, Partition
from dpdist.sources.formats.weighted_rows import check_range
from dpdist.sources.reader_errors import reading
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile, Members, Tags, hash_with_tags
from dpdist.storage.objects import file_at

BLOCK_NUMBERS = 2**20
"""Numbers of a NumPy file that are read at a time."""
METADATA_OBJECTS = ("zarr.json", ".zarray", ".zattrs")
"""Objects of a Zarr array that hold none of its numbers."""


class ArrayFormat(Format):
    """Counts instead of records: an array with one axis for each attribute."""

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        return _array_partitions(path, tags)


class Npy(ArrayFormat):
    """NumPy's file of one array."""

    name = "npy"
    endings = (".npy",)


class Zarr(ArrayFormat):
    """A folder of the objects of one array."""

    name = "zarr"
    endings = (".zarr",)
    is_folder = True

    def hash_file(self, file: File) -> tuple[str, Tags]:
        return _hashed_array(file)


def _hashed_array(file: File) -> tuple[str, Tags]:
    """A digest of all objects of a Zarr array by their names, and the tags of each. Raises: NoRecords."""
    location = file_at(file.path, file.source_label)
    names = sorted(entry.name for entry in location.entries())
    hashed_entries = {name: hash_with_tags(f"{location}/{name}", file.source_label) for name in names}
    if not any(name in hashed_entries for name in METADATA_OBJECTS):
        raise NoRecords(
            f"no Zarr array in {file.source_label}: it has neither zarr.json nor .zarray; give the folder of one array"
        )
    whole = json.dumps([[name, digest] for name, (digest, _) in hashed_entries.items()])
    members = tuple((name, tags) for name, (_, tags) in hashed_entries.items())
    return hashlib.sha256(whole.encode()).hexdigest(), Tags(sum(tags.size for _, tags in members), b"", b"", members)


def check_array(path: str, tags: Tags, domain: Domain) -> None:
    """Accept an array of whole numbers with one axis for each attribute, and one number for each of its values. Raises: InvalidSpec."""
    source_label, declared = tags.source_label, tuple(attribute.values for attribute in domain.attributes)
    with reading(tags.source_label):
        shape, dtype, axes = _describe_array(path, tags)
    if dtype.kind not in "iu":
        raise InvalidSpec(f"{source_label} holds other values than whole numbers, and counts are these: convert it")
    if shape != declared:
        raise InvalidSpec(
            f"{source_label} has another shape than the domain, which is {declared} ({', '.join(domain.names)}); declare the attributes in "
            "the order of the axes, with all values"
        )
    if axes is not None and axes != domain.names:
        raise InvalidSpec(
            f"{source_label} names its axes otherwise than the domain, whose attributes are {', '.join(domain.names)}: give these the "
            "names and the order of the axes"
        )
    labelled = next(
        (
            labelled_attribute.name
            for labelled_attribute in domain.attributes
            if labelled_attribute.missing is not None or labelled_attribute.other is not None
        ),
        None,
    )
    if labelled is not None:
        raise InvalidSpec(f"{source_label} has no missing or other values: leave 'missing' and 'other' of {labelled!r} out")


def part_bytes(path: str, tags: Tags) -> int:
    """What reading a part of the array takes: its numbers, and where those that are not zero are."""
    with reading(tags.source_label):
        if not tags.members:
            return 4 * 8 * BLOCK_NUMBERS
        array = _open_zarr(path, _metadata_members(tags))
        return int(array.dtype.itemsize + 8 * (array.ndim + 3)) * math.prod(_stored_shape(array))


def _array_partitions(path: str, tags: Tags) -> list[Partition]:
    """What tasks read: blocks of a NumPy file, stored objects of a Zarr array."""
    with reading(tags.source_label):
        if not tags.members:
            shape, _, _ = _describe_array(path, tags)
            return [Partition(path, number, tags) for number in range(-(-math.prod(shape) // BLOCK_NUMBERS))]
        array, members = _open_zarr(path, _metadata_members(tags)), dict(tags.members)
        partitions = []
        for number, chunk_index in enumerate(np.ndindex(*_grid(array))):
            needed_names = {*METADATA_OBJECTS, array.metadata.encode_chunk_key(chunk_index)} & members.keys()
            chunk_members = tuple((name, members[name]) for name in sorted(needed_names))
            partitions.append(Partition(path, number, Tags(0, b"", b"", chunk_members, source_label=tags.source_label)))
        return partitions


def cells_of_part(path: str, number: int, tags: Tags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells of a part that hold records, and how many each holds. Raises: InvalidSpec for numbers that count none."""
    with reading(tags.source_label):
        numbers, strides, first_cell = _zarr_part(path, number, tags) if tags.members else _npy_part(path, number, tags)
    if numbers.size:
        check_range(int(numbers.min()), int(numbers.max()), "the array", tags.source_label)
    nonzero_indices = np.nonzero(numbers)
    cells = np.full(nonzero_indices[0].size, first_cell, dtype=np.int64)
    for axis_indices, stride in zip(nonzero_indices, strides, strict=True):
        cells += axis_indices * stride
    return cells, numbers[nonzero_indices].astype(np.int64)


def _npy_part(path: str, number: int, tags: Tags) -> tuple[NDArray[Any], Sequence[int], int]:
    shape, dtype, _ = _describe_array(path, tags)
    first_number = number * BLOCK_NUMBERS
    count = min(BLOCK_NUMBERS, math.prod(shape) - first_number)
    with HashedFile(path, tags) as file:
        file.seek(tags.size - math.prod(shape) * dtype.itemsize + first_number * dtype.itemsize)
        return np.frombuffer(file.read(count * dtype.itemsize), dtype), (1,), first_number


def _zarr_part(path: str, number: int, tags: Tags) -> tuple[NDArray[Any], Sequence[int], int]:
    array = _open_zarr(path, tags.members)
    chunk_index = np.unravel_index(number, _grid(array))
    begins = [int(index) * size for index, size in zip(chunk_index, _stored_shape(array), strict=True)]
    ends = [min(begin + size, n) for begin, size, n in zip(begins, _stored_shape(array), array.shape, strict=True)]
    strides = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    numbers = np.asarray(array[tuple(slice(begin, b) for begin, b in zip(begins, ends, strict=True))])
    return numbers, strides, sum(begin * stride for begin, stride in zip(begins, strides, strict=True))


def _describe_array(path: str, tags: Tags) -> tuple[tuple[int, ...], np.dtype[Any], tuple[object, ...] | None]:
    """Shape, type and, where they are stored, names of the axes."""
    if tags.members:
        array = _open_zarr(path, _metadata_members(tags))
        axes = getattr(array.metadata, "dimension_names", None)
        return tuple(array.shape), np.dtype(array.dtype), axes and tuple(axes)
    with HashedFile(path, tags) as file:
        version = np.lib.format.read_magic(file)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = readers[version](file)
        whole = file.tell() + math.prod(shape) * dtype.itemsize == tags.size
    if fortran and len(shape) > 1:
        raise InvalidSpec(f"{tags.source_label} is in Fortran's order; save numpy.ascontiguousarray(array)")
    if not whole or dtype.hasobject:
        raise InvalidSpec(f"{tags.source_label} cannot be read: it is no whole NumPy file of numbers; write it again")
    return tuple(shape), dtype, None


def _metadata_members(tags: Tags) -> Members:
    """The objects of a Zarr array that hold none of its numbers."""
    return tuple((name, member_tags) for name, member_tags in tags.members if name in METADATA_OBJECTS)


def _open_zarr(path: str, members: Members) -> Any:
    """The array with the named objects of it; one that is not stored holds the fill value."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype

    objects_by_name = {}
    for name, member_tags in members:
        with HashedFile(f"{path.rstrip('/')}/{name}", member_tags) as file:
            objects_by_name[name] = default_buffer_prototype().buffer.from_bytes(file.read())
    return zarr.open_array(zarr.storage.MemoryStore(objects_by_name, read_only=True), mode="r")


def _stored_shape(array: Any) -> tuple[int, ...]:
    """The shape of what one stored object holds."""
    return tuple(array.shards or array.chunks)


def _grid(array: Any) -> tuple[int, ...]:
    """How many stored objects there can be along each axis."""
    return tuple(-(-n // size) for n, size in zip(array.shape, _stored_shape(array), strict=True))
