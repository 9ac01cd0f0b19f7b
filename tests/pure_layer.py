"""A contract of import-linter: modules, and all that they import, need no other packages than those of the smallest installation."""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowedPackages(Contract):
    """What modules may import from outside of the tree, wherever the import stands, and by whatever module between.

    In pyproject.toml: ``source_modules``, packages and modules of the tree; ``allowed_packages``, beside Python's own; and
    ``within``, for packages that only the named module may import, and only where it is asked to.
    """

    type_name = "allowed packages"

    source_modules = fields.SetField(subfield=fields.StringField())
    allowed_packages = fields.SetField(subfield=fields.StringField())
    within = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        del verbose
        allowed = {*self.allowed_packages, *sys.stdlib_module_names}
        needed = set()
        for source in self.source_modules:
            needed |= {source} | graph.find_descendants(source) | graph.find_upstream_modules(source, as_package=True)
        inside = {name for name in needed if not graph.is_module_squashed(name)}
        found = {
            f"{module} -> {package}": [
                told["line_number"] for told in graph.get_import_details(importer=module, imported=package)
            ]
            for module in inside
            for package in graph.find_modules_directly_imported_by(module) - inside - allowed
        }
        exceptions = set(self.within or ())
        missing = {name: [] for name in exceptions - set(found)}
        broken = {name: lines for name, lines in found.items() if name not in exceptions}
        return ContractCheck(kept=not (broken or missing), metadata={"broken": broken, "missing": missing})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for imported, lines in sorted(check.metadata["broken"].items()):
            output.print_error(f"-   {imported} ({', '.join(f'l.{line}' for line in lines)})", bold=False)
        for imported in sorted(check.metadata["missing"]):
            output.print_error(f"-   {imported} is excepted, and nothing imports it", bold=False)
