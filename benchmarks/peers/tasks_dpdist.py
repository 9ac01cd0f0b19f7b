"""dpdist: five tasks. Run by tasks.py."""

import sys

import dpdist as dp

BRANCHES = ["Centre", "North", "Harbour"]
BUDGET = dp.Budget(epsilon=1, delta=1e-6)


def session(cap=BUDGET, **bounds):
    return dp.Session("visits", cap=cap, protect=dp.Persons("card", **bounds))


def tables(path):
    visits = session(most_records=5)
    visits.domain(age=dp.edges(0, 12, 18, 25, 35, 50, 65, 80, 100), branch=BRANCHES)
    planned = visits.plan(dp.marginals(1, 2), budget=BUDGET)
    print(planned.errors)  # exact 95 % half widths, before anything is spent
    print(planned.publish(path))


def means(path):
    visits = session(most_records=5)
    visits.domain(branch=BRANCHES)
    planned = visits.plan(dp.means("minutes", by="branch", between=(0, 240)), budget=BUDGET)
    print(planned.errors)
    print(planned.publish(path))


def medians(path):
    visits = session(most_records=5)
    visits.domain(branch=BRANCHES)
    age = {"of": {"age": {"from": 0, "to": 99}}, "by": ["branch"], "at": [0.5], "share": 0.5}
    planned = visits.plan(dp.marginals("branch"), budget=BUDGET, quantiles=age)
    print(planned.errors)
    print(planned.publish(path).folder)


def visitors(path):
    visits = session(most_groups=3)
    visits.domain(branch=BRANCHES)
    planned = visits.plan(dp.marginals("branch"), budget=BUDGET, records={"count": "persons"})
    print(planned.errors)
    print(planned.publish(path))


def year(path):
    visits = session(cap=dp.Budget(epsilon=2, delta=1e-6), most_records=5)
    visits.domain(branch=BRANCHES)
    for week in ("week-1", "week-2"):
        print(visits.plan(dp.marginals(1), budget=dp.Budget(epsilon=1), release=week).publish(path))
    try:
        visits.plan(dp.marginals(1), budget=dp.Budget(epsilon=1), release="week-3").publish(path)
    except dp.errors.DpdistError as refused:
        print("REFUSED", refused)


globals()[sys.argv[1]](sys.argv[2])
