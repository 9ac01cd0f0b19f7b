from __future__ import annotations

import datetime
import hashlib
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting import histogram_counting
from dpdist.counting.contribution_bounding import Dealing, PersonKey
from dpdist.counting.histogram_counting import count
from dpdist.counting.name_counts import count_names
from dpdist.counting.record_cells import CountSummary
from dpdist.domain import Attribute, Domain, Layout, amounts_attribute
from dpdist.domain.calendar import Times
from dpdist.domain.numeric_columns import Amounts
from dpdist.engine.shuffle import RunKey, gather
from dpdist.errors import InvalidInput, InvalidSpec, UnknownValue
from dpdist.privacy.keys import Secret
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, AdaptiveWeights
from dpdist.size_limits import Sizes
from dpdist.sources.record_sources import Partition, group_partitions, source_of
from dpdist.sources.verified_files import Tags
from dpdist.storage.array_store import Store
from dpdist.storage.objects.folder import Folder
from tests.stability.files import partitioned_records, weights_by_name
from tests.support import small_release

DOMAIN = Domain(
    (
        Attribute("age", edges=tuple(range(13))),
        Attribute("sex", categories=("f", "m")),
        Attribute("work", categories=("a", "b", "c")),
    )
)


ROOT = Secret(bytes(range(32)))


def truth(table: pa.Table) -> np.ndarray:
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    for row in table.to_pylist():
        counts[row["age"], "fm".index(row["sex"]), "abc".index(row["work"])] += 1
    return counts.ravel()


def scratch_files(store: Path) -> list[Path]:
    """Files in a store's scratch."""
    return [file for file in (store / "scratch").rglob("*") if file.is_file()]


def counted(tmp_path: Path, location: Path, domain: Domain = DOMAIN, **options: object) -> tuple[np.ndarray, CountSummary]:
    with closing(Store(tmp_path / "store")) as store:
        source = source_of(location, columns={}, **small_release.whose(**options))
        stored, tally = count(source, domain, store, engine.inline(), root=ROOT)
        return store.read_array(stored), tally


@pytest.mark.parametrize("form", ["parquet", "csv", "csv.gz", "folder", "dictionary"])
def test_every_form_gives_the_same_counts(tmp_path: Path, form: str) -> None:
    table = small_release.records()
    data = tmp_path / "data"
    data.mkdir()
    if form == "folder":
        pyarrow.parquet.write_table(table[:1000], data / "a.parquet")
        pyarrow.csv.write_csv(table[1000:2000], data / "b.csv")
        (data / "deeper").mkdir()
        pyarrow.parquet.write_table(table[2000:], data / "deeper" / "c.parquet", row_group_size=100)
        location = data
    elif form == "dictionary":
        columns = {n: table[n].dictionary_encode() if n in ("sex", "work") else table[n] for n in table.column_names}
        pyarrow.parquet.write_table(pa.table(columns), data / "x.parquet", row_group_size=500)
        location = data / "x.parquet"
    elif form == "parquet":
        location = data / "x.parquet"
        pyarrow.parquet.write_table(table, location, row_group_size=311)
    else:
        location = data / f"x.{form}"
        with pa.output_stream(str(location), compression="gzip" if form.endswith("gz") else None) as sink:
            pyarrow.csv.write_csv(table, sink)
    counts, tally = counted(tmp_path, location)
    np.testing.assert_array_equal(counts, truth(table))
    assert tally == CountSummary(read=3000)
    assert not list((tmp_path / "store").rglob("*part*/manifest.json"))


def test_csv_without_header(tmp_path: Path) -> None:
    table = small_release.records(50)
    path = tmp_path / "x.csv"
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(include_header=False))
    counts, _ = counted(tmp_path, path, header=tuple(table.column_names))
    np.testing.assert_array_equal(counts, truth(table))


def test_values_outside_the_domain(tmp_path: Path) -> None:
    table = pa.table({"age": [-1.0, 3.0, 99.0, None, 5.0], "sex": ["f", "f", "m", "m", None], "work": list("abcab")})
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(table, path)

    def domain(age: str, sex: str) -> Domain:
        return Domain(
            (
                Attribute("age", edges=tuple(range(13)), outside=age),
                Attribute("sex", categories=("f", "m"), outside=sex),
            )
        )

    counts, tally = counted(tmp_path, path, domain("clip", "drop"))
    assert counts.reshape(12, 2).tolist()[0] == [1, 0]
    assert counts.reshape(12, 2).tolist()[11] == [0, 1]
    assert tally == CountSummary(read=5, dropped=2, clipped=2)
    counts, tally = counted(tmp_path, path, domain("drop", "drop"))
    assert counts.sum() == 1
    assert tally == CountSummary(read=5, dropped=4)
    with pytest.raises(UnknownValue, match="holds values of 'age' outside its declared domain"):
        counted(tmp_path, path, domain("error", "drop"))


def test_a_record_without_a_number_changes_nothing_for_others(tmp_path: Path) -> None:
    """Whole numbers are told as others when one of a batch is missing: those that floats do not tell apart are outside either way."""
    domain = Domain((Attribute("age", edges=tuple(range(13)), outside="drop"),))
    far = [3, -(2**63), 2**63 - 1, 2**53 + 1]
    for name, ages in (("whole", far), ("one missing", [*far, None])):
        pyarrow.parquet.write_table(pa.table({"age": pa.array(ages, pa.int64())}), tmp_path / f"{name}.parquet")
        counts, _ = counted(tmp_path, tmp_path / f"{name}.parquet", domain)
        assert counts.tolist() == [0, 0, 0, 1, *[0] * 8], name


def test_a_column_without_any_value_says_what_missing_values_say(tmp_path: Path) -> None:
    """Files whose writers gave it no type: whether one record in them has a value decides no refusal."""
    times = Times(datetime.datetime(2026, 9, 1), 2, "day")
    given = {"age": {"edges": (0, 1, 2)}, "sex": {"categories": ("f", "m")}, "day": {"edges": (0, 1, 2), "times": times}}
    domain = Domain(tuple(Attribute(name, missing="unknown", **each) for name, each in given.items()))
    types = {"age": pa.int64(), "sex": pa.string(), "day": pa.timestamp("us")}
    for name, columns in (("typed", types), ("untyped", dict.fromkeys(types, pa.null()))):
        path = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(pa.table({column: pa.nulls(3, kind) for column, kind in columns.items()}), path)
        assert counted(tmp_path, path, domain)[0].reshape(3, 3, 3)[2, 2, 2] == 3, name


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_person_counts_at_most_k_times_whatever_the_file(tmp_path: Path, most: int) -> None:
    table = small_release.records()
    data = tmp_path / "data"
    data.mkdir()
    pyarrow.parquet.write_table(table[:1700], data / "a.parquet", row_group_size=250)
    pyarrow.csv.write_csv(table[1700:], data / "b.csv")
    counts, tally = counted(tmp_path, data, person="person", most_records=most)
    seen: dict[int, int] = {}
    kept = []
    for row in table.to_pylist():
        seen[row["person"]] = seen.get(row["person"], 0) + 1
        if seen[row["person"]] <= most:
            kept.append(row)
    np.testing.assert_array_equal(counts, truth(pa.Table.from_pylist(kept)))
    assert tally.beyond_bound == 3000 - len(kept) > 0
    assert scratch_files(tmp_path / "store") == []


def test_missing_persons_are_refused(tmp_path: Path) -> None:
    table = pa.table({"age": [1], "sex": ["f"], "work": ["a"], "person": pa.array([None], pa.string())})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InvalidSpec, match="missing values"):
        counted(tmp_path, tmp_path / "x.parquet", person="person")


def test_counting_happens_once_for_a_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_release.write(tmp_path)
    first, tally = counted(tmp_path, tmp_path / "records.parquet")
    monkeypatch.setattr(histogram_counting, "_count_partitions", None)
    (tmp_path / "records.parquet").rename(tmp_path / "moved.parquet")
    again, tally_again = counted(tmp_path, tmp_path / "moved.parquet")
    np.testing.assert_array_equal(first, again)
    assert tally == tally_again


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"age": [1], "sex": ["f"]}, "no column 'work'; say in 'records.columns'"),
        ({"age": [True], "sex": ["f"], "work": ["a"]}, "has bins, its column holds yes or no"),
    ],
)
def test_wrong_columns(tmp_path: Path, columns: dict[str, list[object]], match: str) -> None:
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(InvalidSpec, match=match):
        counted(tmp_path, tmp_path / "x.parquet")


def test_missing_and_strange_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="no records in nothing.parquet"):
        source_of(tmp_path / "nothing.parquet", columns={})
    (tmp_path / "x.txt").write_text("a")
    with pytest.raises(InvalidSpec, match="allowed are"):
        source_of(tmp_path / "x.txt", columns={})


@pytest.mark.parametrize("person", [None, "person"])
@pytest.mark.parametrize("tables", [(), ((0, 2), (1,))])
def test_counts_beyond_memory_are_the_same(tmp_path: Path, tables: tuple[tuple[int, ...], ...], person: str | None) -> None:
    """Sparse pairs dealt out by ranges of positions, several times a task, give the bytes of the dense count."""
    small_release.write(tmp_path)
    source = source_of(tmp_path / "records.parquet", columns={}, **small_release.whose(person))
    found = []
    for memory in (2**33, 10**6):
        store = Store(tmp_path / f"store-{memory}", Sizes(shard_bytes=8 * 16, pending_pairs=20))
        some = engine.Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)
        stored, tally = count(source, DOMAIN, store, some, root=ROOT, tables=tables)
        found.append((store.read_array(stored), tally, stored.digest))
        assert scratch_files(Path(store.location)) == []
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
    assert found[0][0].sum() > 0


@pytest.mark.parametrize("memory", [2**33, 10**6])
@pytest.mark.parametrize("squares", [False, True])
def test_amounts_are_divided_by_kind_as_record_by_record(tmp_path: Path, memory: int, squares: bool) -> None:
    """Few kinds of records are divided once each, many are divided as they are read; against the definition."""
    state = np.random.default_rng(2)
    amounts = Amounts(Fraction(0), Fraction(1), 8, squares=squares)
    domain = Domain((DOMAIN.attributes[1], amounts_attribute("paid", amounts, "drop")))
    sexes, paid = state.integers(0, 2, 500), state.integers(0, 9, 500)
    records = pa.table({"sex": np.array(["f", "m"])[sexes], "paid": paid})
    pyarrow.parquet.write_table(records, tmp_path / "records.parquet")
    expected = np.zeros(domain.shape, dtype=np.int64)
    for sex, steps in zip(sexes.tolist(), paid.tolist(), strict=True):
        (first_bin,), shares = amounts.divide_records(np.array([steps]))
        expected[sex, first_bin : first_bin + len(shares)] += shares[:, 0]
    source = source_of(tmp_path / "records.parquet", columns={})
    some = engine.Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)
    for pending_pairs in (3, 2**22):
        with closing(
            Store(tmp_path / f"store-{pending_pairs}", Sizes(shard_bytes=8 * 16, pending_pairs=pending_pairs))
        ) as store:
            stored, _ = count(source, domain, store, some, root=ROOT)
            np.testing.assert_array_equal(store.read_array(stored), expected.ravel())


def test_totals_of_persons_beyond_memory_are_the_same(tmp_path: Path) -> None:
    """Pairs of all tables, dealt out by ranges of positions and by persons in several parts."""
    small_release.write(tmp_path)
    source = source_of(tmp_path / "records.parquet", columns={}, **small_release.whose("person", most_groups=2))
    domain = Domain(tuple(replace(each, labels=each.labels[: each.values], total="all") for each in DOMAIN.attributes))
    found = []
    for memory in (2**33, 10**6):
        store = Store(tmp_path / f"store-{memory}", Sizes(shard_bytes=8 * 16, pending_pairs=20))
        some = engine.Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)
        stored, tally = count(source, domain, store, some, root=ROOT)
        found.append((np.asarray(store.read_array(stored)).reshape(domain.shape), tally, stored.digest))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
    rows = pyarrow.parquet.read_table(tmp_path / "records.parquet")
    assert found[0][0][-1, -1, -1] == len(set(rows["person"].to_pylist()))


MAILS = ["alice@example.org", "bob@example.org"]


def test_what_is_dealt_out_names_nobody(tmp_path: Path) -> None:
    """What a run that was killed between dealing and counting leaves: sealed, and no dictionary finds a person below the seal."""
    table = pa.table({"age": [1, 2], "sex": ["f", "m"], "work": ["a", "b"], "mail": MAILS})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    source = source_of(tmp_path / "x.parquet", columns={}, **small_release.whose("mail"))
    left = []
    for run in range(2):
        store, key = Store(tmp_path / f"store-{run}"), RunKey.generate()
        partition = Partition(source.files[0][0], 0, source.tags[0])
        _, dealt = Dealing(source, DOMAIN, store, "scratch/x", 1, 100).deal(([partition], key))
        (rows,) = gather(store, "scratch/x", key, 1, dealt).open_parts(store, key).rows_of_part(0)
        left.append({(int(row["high"]), int(row["low"])) for row in rows})
        for mail in MAILS:
            for digest in (hashlib.sha256, hashlib.blake2b, hashlib.md5):
                pair = np.frombuffer(digest(mail.encode()).digest()[:16], dtype=np.uint64)
                assert (int(pair[0]), int(pair[1])) not in left[-1]
        for file in scratch_files(Path(store.location)):
            content = file.read_bytes()
            assert not any(secret in content for secret in (key.content, rows.tobytes(), rows[:1]["high"].tobytes()))
        assert repr(key) == "RunKey()"
        assert repr(PersonKey(key.derive_key(b"persons"))) == "PersonKey()"
    assert len(left[0]) == len(left[1]) == 2
    assert not left[0] & left[1]


def test_tasks_are_as_large_as_each_other_in_bytes() -> None:
    """By number, one task got a file of a terabyte and nine small ones, and another ten small ones."""

    def partition(name: str, group: int, size: int) -> Partition:
        return Partition(name, group, Tags(size, b"", b""))

    small_ones = [partition(f"{i}", 0, 10) for i in range(20)]
    large = [partition("large", group, 1000) for group in range(10)]
    for items in (small_ones + large, large + small_ones, small_ones[:7] + large + small_ones[7:]):
        groups = group_partitions(items, 5)
        assert [each for group in groups for each in group] == items
        assert all(groups)
        sizes = [sum(each.tags.size / (10 if each.path == "large" else 1) for each in group) for group in groups]
        assert len(groups) == 5
        assert max(sizes) <= 1200 / 5 + 100
    assert group_partitions([], 5) == [[]]
    assert group_partitions(small_ones[:2], 5) == [[each] for each in small_ones[:2]]
    assert group_partitions([partition("empty", 0, 0)], 5) == [[partition("empty", 0, 0)]]


@pytest.mark.parametrize("person", [None, "person"])
def test_counting_lists_nothing_and_shares_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, person: str | None
) -> None:
    """Files of a shared folder were globbed for every range, which is quadratic: what was dealt out is known by its index."""
    small_release.write(tmp_path)
    source = source_of(tmp_path / "records.parquet", columns={}, **small_release.whose(person))
    store = Store(tmp_path / "store", Sizes(shard_bytes=8 * 16, pending_pairs=500))
    some = engine.Engine(workers=2, memory_bytes=10**6, threads=1, connect=None, local=True)
    written: list[str] = []
    put = Store.put_values

    def noted(self: Store, name: str, block: np.ndarray) -> None:
        written.append(name)
        put(self, name, block)

    def none(*_: object) -> None:
        raise AssertionError("listed")

    monkeypatch.setattr(Store, "put_values", noted)
    monkeypatch.setattr(Path, "glob", none)
    with monkeypatch.context() as amid:
        amid.setattr(Folder, "entries", none)
        counts, _ = count(source, DOMAIN, store, some, root=ROOT)
    assert store.read_array(counts).sum() == (
        3000 if person is None else len(set(small_release.records()["person"].to_pylist()))
    )
    assert len(written) == len(set(written)) <= 24  # not one for each of the ranges of each task: those are 72 or more
    assert all(name.startswith("scratch/") for name in written)


def persons(folder: Path, *columns: object, **declared: object) -> int:
    """Records kept of files with these persons, one of each person: .parquet for Arrow arrays, .csv for texts."""
    for number, column in enumerate(columns):
        if isinstance(column, str):
            lines = "".join(f"1,f,a,{person}\n" for person in column.split("|"))
            (folder / f"{number}.csv").write_text(f"age,sex,work,person\n{lines}")
        else:
            assert isinstance(column, pa.Array)
            fixed = {name: [value] * len(column) for name, value in (("age", 1), ("sex", "f"), ("work", "a"))}
            pyarrow.parquet.write_table(pa.table({**fixed, "person": column}), folder / f"{number}.parquet")
    counts, _ = counted(folder / "out", folder, person="person", **declared)
    return int(counts.sum())


TEXTS = pa.array(["1", "01", "1.0"])


@pytest.mark.parametrize(
    ("columns", "declared", "kept"),
    [
        ((pa.array([1, 1]), "1|01"), {}, 2),  # text, whatever the first file holds
        ((pa.array([1, 1]), "1|01"), {"type": "integer"}, 1),
        (("1", pa.array([1])), {}, 1),
        ((pa.array([1]), TEXTS), {}, 3),
        ((pa.array([1]), pa.array([1]).cast(pa.decimal128(30, 2))), {}, 1),
        ((pa.array([1], pa.int8()), pa.array([1], pa.uint64())), {}, 1),
        (("1|01", TEXTS), {}, 3),  # text is text
        (("1|01", pa.array([1])), {"type": "integer"}, 1),
        ((TEXTS, TEXTS.cast(pa.large_string()).slice(1), TEXTS.dictionary_encode().take(pa.array([0, 1]))), {}, 3),
        ((TEXTS, pa.array(["1"]).cast(pa.string_view())), {}, 3),
        ((pa.array([2, 1]).dictionary_encode(), pa.array([1])), {}, 2),
        ((pa.array(["a", "A", "a "]),), {}, 3),
    ],
)
def test_one_person_is_one_in_all_files(
    tmp_path: Path, columns: tuple[object, ...], declared: dict[str, object], kept: int
) -> None:
    assert persons(tmp_path, *columns, **declared) == kept


@pytest.mark.parametrize(
    ("columns", "declared", "match"),
    [
        (
            (pa.array([1]), pa.array([1.0])),
            {},
            "file 2 of .*/: .* holds numbers; persons are named by text or whole numbers",
        ),
        (
            (pa.array([1.0, float("nan")]),),
            {"type": "integer"},
            "file 1 of .*/: .* holds numbers; persons are named by",
        ),
        ((pa.array([True]),), {}, "holds yes or no"),
        ((pa.array([1]), pa.array(["1.5"])), {"type": "integer"}, "file 2 of .*/: .* or others than whole numbers"),
        ((pa.array([1]), pa.array(["x"])), {"type": "integer"}, "file 2 of .*/: .* or others than whole numbers"),
        ((pa.array(["a", ""]),), {}, "file 1 of .*/: the person column 'person' has missing values"),
        ((pa.array(["a", None]),), {}, "has missing values"),
        (("a|",), {}, "file 1 of .*/: the person column 'person' has missing values"),
        ((pa.array([1]), "1|"), {}, "file 2 of .*/: the person column 'person' has missing values"),
    ],
)
def test_persons_of_another_type_are_refused(
    tmp_path: Path, columns: tuple[object, ...], declared: dict[str, object], match: str
) -> None:
    with pytest.raises(InvalidSpec, match=match) as found:
        persons(tmp_path, *columns, **declared)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.csv", b'age,sex,work\n1,f,a\n2,m,"alice', r"x.csv cannot be read: a quotation mark is still open .*\(line 3\)"),
        ("x.csv", "age,sex,work\n1,f,alic\u00e9".encode("latin-1"), "x.csv cannot be read: its text is not UTF-8"),
        ("x.csv.gz", b"alice", "x.csv.gz cannot be read: its name says gzip, its content is something else"),
        ("x.parquet", b"PAR1alicePAR1", "x.parquet cannot be read: it is no whole Parquet file"),
    ],
    ids=["open quote", "latin-1", "not gz", "not parquet"],
)
def test_errors_of_readers_quote_nothing(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSpec, match=match) as found:
        counted(tmp_path / "out", tmp_path / name)
    assert "alic" not in str(found.value)
    assert found.value.__suppress_context__


def test_cells_are_numbered_up_to_2_to_the_63(tmp_path: Path) -> None:
    """Flat numbers of cells fit into int64: 2^62 cells do, 2^63 do not."""
    names = [f"b{i}" for i in range(63)]
    file = tmp_path / "records.parquet"
    pyarrow.parquet.write_table(pa.table({name: ["y"] for name in names}), file)
    most = Domain(tuple(Attribute(name, categories=("x", "y")) for name in names[:62]))
    beyond = Domain(tuple(Attribute(name, categories=("x", "y")) for name in names))
    assert (most.cells, beyond.cells) == (2**62, 2**63)
    store = Store(tmp_path / "store")
    source = source_of(file, columns={})
    counts, _ = count(source, most, store, engine.inline(), root=ROOT, tables=((0,), (61,)))
    assert store.read_array(counts).tolist() == [0, 1, 0, 1]
    with pytest.raises(InvalidInput, match=r"up to 2\^63 cells, found 9\.22e\+18"):
        count(source, beyond, store, engine.inline(), root=ROOT, tables=((0,), (62,)))


@pytest.mark.parametrize(
    ("memory", "promised"),
    [
        (2**33, 3 * 8 * 72 + 2 * 250_000 * 64),  # three arrays of all counts, and two batches of rows
        (2**30, 3 * 8 * 72 + 2 * 250_000 * 64),
        (3 * 8 * 72 + 2 * 250_000 * 64, 3 * 8 * 72 + 2 * 250_000 * 64),
        (3 * 8 * 72 + 2 * 250_000 * 64 - 1, 6 * 16 * 2**22 + 2 * 250_000 * 64),  # pairs that are sorted, and two batches
    ],
)
def test_memory_that_counting_promises(memory: int, promised: int) -> None:
    some = engine.Engine(workers=1, memory_bytes=memory, threads=1, connect=None, local=True)
    assert histogram_counting.task_bytes(Layout(DOMAIN.shape, ()), some) == promised


def test_amounts_moved_into_their_range_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pa.table({"sex": list("ffmm"), "euros": [-1.0, 3.0, 500.0, 7.0]}), path)
    domain = Domain(
        (Attribute("sex", categories=("f", "m")), amounts_attribute("euros", Amounts(Fraction(0), Fraction(1), 7), None))
    )
    _, tally = counted(tmp_path, path, domain)
    assert tally == CountSummary(read=4, out_of_range=2)
    assert "0 clipped, 2 amounts moved into their range" in tally.sentence(persons=False)


@pytest.mark.parametrize("most", [1, 2])
def test_records_lost_and_intended_repeats_are_counted_apart(tmp_path: Path, most: int) -> None:
    """Ann is in three groups, in one of them twice: with two groups one of her records is lost, and one repeats her."""
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pa.table({"work": list("aabcd"), "who": ["ann"] * 4 + ["bob"]}), path)
    domain = Domain((Attribute("work", categories=tuple("abcd")),))
    _, tally = counted(tmp_path, path, domain, person="who", most_records=most, most_groups=2)
    assert tally == CountSummary(read=5, beyond_bound=1, repeated=2 - most)
    assert ("1 more of a person in a group" in tally.sentence(persons=True)) == (most == 1)
    assert f"{3 - most} beyond the bound of one person" in tally.sentence(persons=False)


@pytest.mark.parametrize(("missing", "kept", "dropped"), [("drop", [1, 1, 0], 4), ("each", [3, 3, 0], 0)])
def test_records_without_a_person_are_left_out_or_are_persons(
    tmp_path: Path, missing: str, kept: list[int], dropped: int
) -> None:
    """Files alike but for a last row, so that records lie at equal places: those without a person are never one."""
    data = tmp_path / "data"
    data.mkdir()
    domain = Domain((Attribute("work", categories=tuple("abc")),))
    table = pa.table({"work": list("abacb"), "who": pa.array(["ann", "bob", None, "ann", ""])})
    pyarrow.parquet.write_table(table, data / "1.parquet", row_group_size=3)
    pyarrow.parquet.write_table(table.append_column("x", pa.array([1] * 5)), data / "2.parquet", row_group_size=3)
    counts, tally = counted(tmp_path, data, domain, person="who", missing=missing)
    assert counts.tolist() == kept
    assert (tally.read, tally.dropped, tally.read - tally.dropped - tally.beyond_bound) == (10, dropped, sum(kept))


@pytest.mark.parametrize(("missing", "selected"), [("drop", ["ann's"]), ("each", ["ann's", "nobody's"])])
def test_names_of_records_without_a_person(tmp_path: Path, missing: str, selected: list[str]) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(
        pa.table({"work": ["ann's", "nobody's", "nobody's"], "who": pa.array(["ann", None, None])}), path
    )
    domain = Domain((Attribute("work", categories=("name 1",), other="other"),))
    source = source_of(path, columns={}, **small_release.whose("who", missing=missing))
    found = count_names(partitioned_records(source, domain, tmp_path), "work", frozenset(), AdaptiveWeights(2, "l2"), 2**40)
    assert weights_by_name(found) == dict(zip(selected, [1 << UNIT_BITS, 2 << UNIT_BITS], strict=False))
