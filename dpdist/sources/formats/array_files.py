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
from dpdist.sources.verified_files import HashedFile, Members, Tags, hashed
from dpdist.storage.objects import file_at

BLOCK_NUMBERS = 2**20
"""Numbers of a NumPy file that are read at a time."""
DESCRIBES = ("zarr.json", ".zarray", ".zattrs")
"""Objects of a Zarr array that hold none of its numbers."""


class ArrayFormat(Format):
    """Counts instead of records: an array with one axis for each attribute."""

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        return parts_of(path, tags)


class Npy(ArrayFormat):
    """NumPy's file of one array."""

    name = "npy"
    endings = (".npy",)


class Zarr(ArrayFormat):
    """A folder of the objects of one array."""

    name = "zarr"
    endings = (".zarr",)
    is_folder = True

    def hashed(self, file: File) -> tuple[str, Tags]:
        return hashed_array(file)


def hashed_array(file: File) -> tuple[str, Tags]:
    """A digest of all objects of a Zarr array by their names, and the tags of each. Raises: NoRecords."""
    place = file_at(file.path, file.called)
    names = sorted(each.name for each in place.entries())
    found = {name: hashed(f"{place}/{name}", file.called) for name in names}
    if not any(name in found for name in DESCRIBES):
        raise NoRecords(
            f"no Zarr array in {file.called}: it has neither zarr.json nor .zarray; give the folder of one array"
        )
    whole = json.dumps([[name, digest] for name, (digest, _) in found.items()])
    members = tuple((name, tags) for name, (_, tags) in found.items())
    return hashlib.sha256(whole.encode()).hexdigest(), Tags(sum(tags.size for _, tags in members), b"", b"", members)


def check_array(path: str, tags: Tags, domain: Domain) -> None:
    """Accept an array of whole numbers with one axis for each attribute, and one number for each of its values. Raises: InvalidSpec."""
    called, declared = tags.called, tuple(attribute.values for attribute in domain.attributes)
    with reading(tags.called):
        shape, dtype, axes = _described(path, tags)
    if dtype.kind not in "iu":
        raise InvalidSpec(f"{called} holds other values than whole numbers, and counts are these: convert it")
    if shape != declared:
        raise InvalidSpec(
            f"{called} has another shape than the domain, which is {declared} ({', '.join(domain.names)}); declare the attributes in the "
            "order of the axes, with all values"
        )
    if axes is not None and axes != domain.names:
        raise InvalidSpec(
            f"{called} names its axes otherwise than the domain, whose attributes are {', '.join(domain.names)}: give these the "
            "names and the order of the axes"
        )
    labelled = next((each.name for each in domain.attributes if each.missing is not None or each.other is not None), None)
    if labelled is not None:
        raise InvalidSpec(f"{called} has no missing or other values: leave 'missing' and 'other' of {labelled!r} out")


def part_bytes(path: str, tags: Tags) -> int:
    """What reading a part of the array takes: its numbers, and where those that are not zero are."""
    with reading(tags.called):
        if not tags.members:
            return 4 * 8 * BLOCK_NUMBERS
        array = _zarr(path, _describing(tags))
        return int(array.dtype.itemsize + 8 * (array.ndim + 3)) * math.prod(_stored_shape(array))


def parts_of(path: str, tags: Tags) -> list[Partition]:
    """What tasks read: blocks of a NumPy file, stored objects of a Zarr array."""
    with reading(tags.called):
        if not tags.members:
            shape, _, _ = _described(path, tags)
            return [Partition(path, number, tags) for number in range(-(-math.prod(shape) // BLOCK_NUMBERS))]
        array, members = _zarr(path, _describing(tags)), dict(tags.members)
        out = []
        for number, place in enumerate(np.ndindex(*_grid(array))):
            needed = {*DESCRIBES, array.metadata.encode_chunk_key(place)} & members.keys()
            held = tuple((name, members[name]) for name in sorted(needed))
            out.append(Partition(path, number, Tags(0, b"", b"", held, called=tags.called)))
        return out


def cells_of_part(path: str, number: int, tags: Tags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells of a part that hold records, and how many each holds. Raises: InvalidSpec for numbers that count none."""
    with reading(tags.called):
        numbers, strides, first = _zarr_part(path, number, tags) if tags.members else _npy_part(path, number, tags)
    if numbers.size:
        check_range(int(numbers.min()), int(numbers.max()), "the array", tags.called)
    some = np.nonzero(numbers)
    cells = np.full(some[0].size, first, dtype=np.int64)
    for places, stride in zip(some, strides, strict=True):
        cells += places * stride
    return cells, numbers[some].astype(np.int64)


def _npy_part(path: str, number: int, tags: Tags) -> tuple[NDArray[Any], Sequence[int], int]:
    shape, dtype, _ = _described(path, tags)
    first = number * BLOCK_NUMBERS
    count = min(BLOCK_NUMBERS, math.prod(shape) - first)
    with HashedFile(path, tags) as file:
        file.seek(tags.size - math.prod(shape) * dtype.itemsize + first * dtype.itemsize)
        return np.frombuffer(file.read(count * dtype.itemsize), dtype), (1,), first


def _zarr_part(path: str, number: int, tags: Tags) -> tuple[NDArray[Any], Sequence[int], int]:
    array = _zarr(path, tags.members)
    place = np.unravel_index(number, _grid(array))
    begins = [int(each) * size for each, size in zip(place, _stored_shape(array), strict=True)]
    ends = [min(a + size, n) for a, size, n in zip(begins, _stored_shape(array), array.shape, strict=True)]
    strides = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    numbers = np.asarray(array[tuple(slice(a, b) for a, b in zip(begins, ends, strict=True))])
    return numbers, strides, sum(a * stride for a, stride in zip(begins, strides, strict=True))


def _described(path: str, tags: Tags) -> tuple[tuple[int, ...], np.dtype[Any], tuple[object, ...] | None]:
    """Shape, type and, where they are stored, names of the axes."""
    if tags.members:
        array = _zarr(path, _describing(tags))
        axes = getattr(array.metadata, "dimension_names", None)
        return tuple(array.shape), np.dtype(array.dtype), axes and tuple(axes)
    with HashedFile(path, tags) as file:
        version = np.lib.format.read_magic(file)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = readers[version](file)
        whole = file.tell() + math.prod(shape) * dtype.itemsize == tags.size
    if fortran and len(shape) > 1:
        raise InvalidSpec(f"{tags.called} is in Fortran's order; save numpy.ascontiguousarray(array)")
    if not whole or dtype.hasobject:
        raise InvalidSpec(f"{tags.called} cannot be read: it is no whole NumPy file of numbers; write it again")
    return tuple(shape), dtype, None


def _describing(tags: Tags) -> Members:
    """The objects of a Zarr array that hold none of its numbers."""
    return tuple((name, each) for name, each in tags.members if name in DESCRIBES)


def _zarr(path: str, members: Members) -> Any:
    """The array with the named objects of it; one that is not stored holds the fill value."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype

    held = {}
    for name, each in members:
        with HashedFile(f"{path.rstrip('/')}/{name}", each) as file:
            held[name] = default_buffer_prototype().buffer.from_bytes(file.read())
    return zarr.open_array(zarr.storage.MemoryStore(held, read_only=True), mode="r")


def _stored_shape(array: Any) -> tuple[int, ...]:
    """The shape of what one stored object holds."""
    return tuple(array.shards or array.chunks)


def _grid(array: Any) -> tuple[int, ...]:
    """How many stored objects there can be along each axis."""
    return tuple(-(-n // size) for n, size in zip(array.shape, _stored_shape(array), strict=True))
