"""What clients of the measuring service hear says nothing of the records."""

from __future__ import annotations

import json

from dpdist.privacy import keys
from dpdist.runtime.context import PUBLIC_STAGES
from tests.plugins.service.measuring_service import Running, folder_for_all
from tests.plugins.service.test_measuring_service import ended
from tests.plugins.service.test_spec_registry import WEEK, weekly


def test_clients_of_the_service_hear_the_same_whatever_the_records_are() -> None:
    """An open quotation mark after 3 or after 700 records, a value that is not declared in the first or the second file."""
    with folder_for_all() as folder:
        content = {
            "records": {"path": "{period}"},
            "domain": {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"]}},
        }
        weekly(folder / "specs", **content, workload=[{"marginals": {"ways": [1]}}])
        keys.initialise(folder / "home")
        records = folder / "specs" / str(WEEK)
        records.mkdir()
        running = Running(folder, folder / "home")
        try:
            for texts in (
                ["age,sex\n" + "1,f\n" * rows + '"2,f\n' for rows in (3, 700)],
                ["age,sex\n" + "1,f\n" * rows + "99,f\n" for rows in (3, 700)],
            ):
                heard = []
                for text in texts:
                    for old in records.iterdir():
                        old.unlink()
                    (records / "a.csv").write_text("age,sex\n3,m\n")
                    (records / ("b.csv" if "99" not in text or len(text) < 100 else "0.csv")).write_text(text)
                    heard.append({**ended(running, folder / "specs" / "weekly.yaml"), "run": ""})
                assert heard[0] == heard[1]
                assert str(folder) not in json.dumps(heard)
                assert not {event[0] for event in heard[0]["events"]} - {*PUBLIC_STAGES}
            assert "(line 702)" in (folder / "log").read_text()  # what was found is in the operator's log
            assert running.charges() == []
        finally:
            running.end()


def test_a_spec_that_cannot_be_read_tells_no_path_of_the_service() -> None:
    with folder_for_all() as folder:
        weekly(folder / "specs", budget={"rho": "many"})
        keys.initialise(folder / "home")
        running = Running(folder, folder / "home")
        try:
            facts = running.request_release(folder / "specs" / "weekly.yaml", WEEK)
            assert (facts["status"], facts["reason"]) == (422, "InvalidSpec")
            assert str(folder) not in json.dumps(facts)
            assert "a number is needed" in (folder / "log").read_text()
        finally:
            running.end()
