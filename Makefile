# make demo: publish examples/census (DEMO: another spec).   make test: the test suite.
# make slow: the statistical and scale runs; PART=3/12 the third twelfth of their CPU time (tests/slow_cpu_seconds.json has that of every
# file, RECORD=1 writes it), WITHIN=480 begins no test after so many seconds.   make large: 10^8 cells, 10^6 steps, containers, clusters.
# make containers: the image and deploy/compose.yaml in real containers (podman; docs/operations.md).
# make mutants: small faults planted in the code, which the tests have to catch; SAMPLE of them, drawn with SEED, each given to tests of
# up to CPU seconds, for MINUTES: the next run goes on; lines newer than SINCE count three times (tests/mutants/README.md).
# Tests are collected once (tests/parallel.py) and run in one process a core and two more; every file's tests run in one process, in
# order. PROCESSES=0: all in one. Temporary files are in /dev/shm if 4 GiB are free there (a run takes less than 2), unless TMPDIR is set.
PYTHON ?= python3
VENV ?= .venv
TESTS ?= tests
PROCESSES ?= auto
SAMPLE ?= 500
SEED ?= 37
MINUTES ?= 20
CPU ?= 10
# make dist: what a version is shipped as, into DIST, signed with KEY (ECDSA P-256, PEM), with the image if IMAGE names its builder (podman,
# docker); make dist-check: whether it is that, with PUBLIC_KEY; make locked: the packages of the image anew.
DIST ?= dist
TOOLS ?= build/dist-tools
EXTRAS = flows postgres observability iceberg adbc delta sql
# A test that takes five minutes hangs, over several hosts fifteen: its stacks are printed, and the run fails with its name.
HANG_SECONDS = 300
HANGS = -o faulthandler_timeout=$(HANG_SECONDS) -o faulthandler_exit_on_timeout=true --max-worker-restart=0
DEMO ?= examples/census/release.yaml
DEMO_HOME ?= build/demo

# Modules are compiled when they are first imported and kept; compiling all of every package would take longer than the installation.
# Processes that the tests start find them compiled.
export PYTHONDONTWRITEBYTECODE =

# uv installs in a third of pip's CPU time; pip does it where uv does not find the packages, as with an index that only pip was told of.
INSTALL = install() { \
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv \
	&& $(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python --constraint constraints.txt "$$@" \
	|| $(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt "$$@"; }; install

# make hosts, make kubernetes: releases over five machines, and on a node with the chart (docs/operations.md).
# make figures: the tables of the documentation against what their programs print today; PAGES=docs/noise.md for some of them.
.PHONY: hosts kubernetes figures demo installed test slow large core containers mutants check locked dist dist-check clean

demo: $(VENV)/.installed
	DPDIST_HOME=$(DEMO_HOME) $(VENV)/bin/dpdist keys check 2>/dev/null || DPDIST_HOME=$(DEMO_HOME) $(VENV)/bin/dpdist keys init
	DPDIST_HOME=$(DEMO_HOME) $(VENV)/bin/dpdist run $(DEMO)

installed: $(VENV)/.installed-test

test: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.parallel $(HANGS) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(TESTS)

slow large: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.parallel -p tests.suite_parts -m "$(if $(filter slow,$@),slow and not large,large)" --cpu-record tests/$@_cpu_seconds.json $(if $(RECORD),--write-record) \
	  $(if $(PART),--part $(PART)) $(if $(WITHIN),--begin-within $(WITHIN)) \
	  $(HANGS) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(TESTS)

figures: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.figures $(PAGES)

core: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.core_alone -q -n $(PROCESSES) --dist loadfile $(TESTS)

containers: $(VENV)/.installed-test
	DPDIST_TEST_CONTAINERS=required $(VENV)/bin/python -m pytest -m large tests/deploy/test_containers.py

hosts: HANG_SECONDS = 900
hosts: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest -m large -s $(HANGS) tests/hosts

kubernetes: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest -m large -s --durations=0 tests/kubernetes

mutants: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED) --cpu $(CPU) --minutes $(MINUTES) $(if $(SINCE),--since $(SINCE))

check: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python tools/vague_names.py --check dpdist flows
	$(VENV)/bin/python tools/vague_names.py --check --definitions tests benchmarks docs tools deploy

locked:
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make locked" --constraint constraints.txt $(addprefix --extra ,$(EXTRAS)) pyproject.toml -o deploy/requirements.txt

dist: $(TOOLS)/.installed
	$(TOOLS)/bin/python deploy/dist.py build $(DIST) $(if $(KEY),--key $(KEY)) $(if $(IMAGE),--image $(IMAGE))

dist-check:
	$(PYTHON) deploy/dist.py check $(DIST) $(if $(PUBLIC_KEY),--public-key $(PUBLIC_KEY))

$(TOOLS)/.installed:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  "build>=1.2,<2" "cyclonedx-bom>=7,<8" "helm-python-sdk>=0.2.2,<0.3" "setuptools>=77"
	touch $@

clean:
	rm -rf build releases .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable ".[cli]"
	touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable ".[test]"
	touch $@ $(VENV)/.installed
