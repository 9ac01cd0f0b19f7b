"""DP Wizard (MIT): the script that its form writes for each task that it has a form for. Run by tasks.py."""

import subprocess
import sys

import polars as pl
from dp_wizard.types import ColumnName, Product
from dp_wizard.utils.code_generators import AnalysisPlan, AnalysisPlanColumn
from dp_wizard.utils.code_generators.script_generator import ScriptGenerator

FORMS = {
    "tables": ("age", AnalysisPlanColumn("Histogram", 0, 100, 8, 1)),  # bins of equal width; by branch and band alone
    "means": ("minutes", AnalysisPlanColumn("Mean", 0, 240, 10, 1)),
    "medians": ("age", AnalysisPlanColumn("Median", 0, 100, 100, 1)),
}
if sys.argv[1] not in FORMS:
    sys.exit("NO FORM")
COLUMNS = {"card": pl.Int64(), "age": pl.Float64(), "branch": pl.String(), "borrowed": pl.String(), "minutes": pl.Float64()}
column, asked = FORMS[sys.argv[1]]
plan = AnalysisPlan(
    product=Product.STATISTICS,
    path=None,
    contributions=5,
    contributions_entity="visitor",
    epsilon=1.0,
    max_rows=100_000,
    groups={ColumnName("branch"): ["Centre", "North", "Harbour"]},
    analysis_columns={ColumnName(column): [asked]},
    schema_columns={ColumnName(name): kind for name, kind in COLUMNS.items()},
)
with open("task.py", "w", encoding="utf-8") as file:
    file.write(ScriptGenerator(plan, plan.get_note()).make_py())
words = [sys.executable, "task.py", "--csv", sys.argv[2]]
sys.exit(subprocess.run(words, env={"MPLBACKEND": "agg", "PATH": ""}, check=False).returncode)
