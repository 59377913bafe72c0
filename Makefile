# Two commands are enough: `make demo` and `make test`. Both start from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
#: What running needs, and what developing needs besides.
RUN := $(VENV)/.run
READY := $(VENV)/.ready
FUZZ := $(VENV)/.fuzz
UV := $(BIN)/uv pip
# Tests with browsers wait more than they compute; those of `make unit` compute.
WORKERS ?= 5
UNIT_WORKERS ?= 2
# Hundreds of processes are started: what they import is compiled once, even where the environment says not to.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test unit slow check docs bench fuzz mutate release
.DELETE_ON_ERROR:

help:
	@echo "make setup    the virtual environment with everything for developing, and a browser"
	@echo "make demo     start the reference app, drive it, show the files"
	@echo "make check    format, lint, types and layers"
	@echo "make unit     every short test that needs no browser and no other environment"
	@echo "make test     make check, and the tests"
	@echo "make slow     tests that take long, need other browsers, or run programs of other projects"
	@echo "make docs     the documentation as a site, in site/"
	@echo "make bench    speed, as ratios against named baselines"
	@echo "make fuzz     generated inputs, through every door by which bytes come in"
	@echo "make mutate   changes of the code that no test notices"
	@echo "make release  build, check and sign what is published"

setup: $(READY)
	@$(BIN)/abp doctor --install
	@echo "ready: . $(BIN)/activate && abp --help"

$(BIN)/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV); \
		$(PYTHON) -m pip --python $(BIN)/python install -qq --disable-pip-version-check --require-hashes -r $<; \
	else \
		$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r $<; \
	fi
	@touch $@

$(RUN): $(BIN)/uv pyproject.toml requirements/run.txt README.md hatch_build.py
	@echo "installing into $(VENV): what running needs …"
	@$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/run.txt
	@$(UV) install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(RUN) requirements/dev.txt
	@echo "installing into $(VENV): what developing needs …"
	@$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

demo: $(RUN)
	@$(BIN)/abp doctor --install
	@$(BIN)/abp demo --out demo-output

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@# mypy takes one processor. Another compiles the tests meanwhile, so that not each worker of `make test` does; what is wrong with them
	@# is said there.
	@$(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 & pid=$$!; trap "kill $$pid 2>/dev/null" INT TERM; \
		$(BIN)/mypy; status=$$?; test $$status = 0 || kill $$pid 2>/dev/null; wait $$pid; exit $$status
	@$(BIN)/python -m pytest -q tests/test_layers.py

unit: $(READY)
	@$(BIN)/python -m pytest -q -n $(UNIT_WORKERS) --dist worksteal -m "not browser and not load and not slow and not hosts" \
		--ignore tests/e2e

# A lighter Chromium, and what makes videos, where Debian has them and may be asked: tests take them if they are there, and do without if not.
test: setup check
	@test "$$(id -u)" != 0 || command -v chromium-headless-shell >/dev/null || \
		apt-get install -qq -y chromium-headless-shell >/dev/null 2>&1 || true
	@test "$$(id -u)" != 0 || command -v ffmpeg >/dev/null || \
		apt-get install -qq -y --no-install-recommends ffmpeg >/dev/null 2>&1 || true
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore tests/test_layers.py  # `make check` has run it

# Fresh environments, floods, gigabytes, an hour's work of faults in a minute; MCP servers and clients of other projects, JupyterLab.
slow: setup
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "slow or hosts or hypothesis" --hypothesis-profile slow

docs: $(READY)
	@$(BIN)/python -m tests.site

# ARGS="--address https://HOST/OWNER/NAME", "--key FILE": release/__main__.py
release: $(READY)
	@$(BIN)/python -m release $(ARGS)

bench: setup
	@$(BIN)/python -m tests.benchmarks

$(FUZZ): $(READY) requirements/fuzz.txt
	@$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/fuzz.txt
	@touch $@

# ARGS="--minutes 2 url headers" chooses.
fuzz: $(FUZZ)
	@$(BIN)/python -m tests.fuzz $(ARGS)

# ARGS="--sample 100 protocol surfaces/mcp" chooses.
mutate: setup
	@$(BIN)/python -m tests.support.mutation $(ARGS)
