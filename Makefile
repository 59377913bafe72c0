# Two commands are enough: `make demo` and `make test`. Both start from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
#: What running needs, and what developing needs besides.
RUN := $(VENV)/.run
READY := $(VENV)/.ready
FUZZ := $(VENV)/.fuzz
MUTATE := $(VENV)/.mutate
UV := $(BIN)/uv pip
# Tests wait for browsers and deadlines more than they compute.
WORKERS ?= 4
UNIT_WORKERS ?= 4
# Hundreds of processes are started: what they import is compiled once, even where the environment says not to.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test slow unit hosts coverage check docs bundle release image compat bench fuzz mutate lock clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    start the reference app, drive it, show the files"
	@echo "make test    everything CI runs: format, lint, types, layers, tests"
	@echo "make slow    the tests that take a minute each: fresh environments, floods, gigabytes, a soak"
	@echo "make hosts   the tests that run programs of other projects"
	@echo "make coverage    the tests again, and the lines that they reach"
	@echo "make unit    every short test that needs no browser and no other environment"
	@echo "make check   format, lint, types and layers only"
	@echo "make docs    the documentation as a site, in site/; search works in it without a server, too"
	@echo "make bundle  the MCP bridge as a file that desktop clients install with one click"
	@echo "make release built, checked, signed, and what is left to do by a person"
	@echo "make image   a container image with a browser"
	@echo "make compat  the Pythons, lowest versions and browsers of this machine, tried"
	@echo "make bench   speed, as ratios against named baselines"
	@echo "make fuzz    inputs that nobody thought of, through every door by which bytes come in"
	@echo "make mutate  changes of the code that no test notices, by chance, room by room"
	@echo "make setup   the virtual environment with everything for developing, and a browser"

setup: $(READY)
	@$(BIN)/abp doctor --install

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
	@$(BIN)/python -m pytest -q -n $(UNIT_WORKERS) --dist worksteal -m "not browser and not load and not slow and not exhaustive and not hosts" \
		--hypothesis-profile unit --ignore tests/e2e

# A lighter Chromium, and what makes videos, where Debian has them and may be asked: tests take them if they are there, and do without if not.
test: setup check
	@test "$$(id -u)" != 0 || command -v chromium-headless-shell >/dev/null || \
		apt-get install -qq -y chromium-headless-shell >/dev/null 2>&1 || true
	@test "$$(id -u)" != 0 || command -v ffmpeg >/dev/null || \
		apt-get install -qq -y --no-install-recommends ffmpeg >/dev/null 2>&1 || true
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Tests run a third longer while their coverage is measured, and those of time and processor time measure that too.
coverage: $(READY)
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not exhaustive and not hosts"
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --fail-under=95
	@$(BIN)/python -m coverage report --fail-under=100 \
		--include='transports/errors.py,transports/_internal/arguments.py,transports/protocol/_capabilities.py,transports/protocol/messages.py,transports/protocol/_payloads.py,transports/protocol/_declarations.py,transports/protocol/binary.py,transports/protocol/_find_content.py,transports/protocol/_heuristics.py,transports/protocol/_params.py'

# Fresh environments, floods, gigabytes and an hour's work of faults in a minute.
slow: setup
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m slow

# Programs of other projects that meet ours: MCP servers and clients, the host of the store protocol, JupyterLab. Most of the time is theirs.
hosts: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m hosts

docs: $(READY)
	@$(BIN)/python -m tests.site

# For desktop clients of MCP: dist/abp-transports-….mcpb
bundle: $(READY)
	@$(BIN)/python -m release.bundle

# ARGS="--address https://HOST/OWNER/NAME", "--key FILE": release/__main__.py
release: $(READY)
	@$(BIN)/python -m release $(ARGS)

# With the engine that is there: ENGINE=podman, docker or buildah. dist/ holds the wheel.
ENGINE ?= $(firstword $(foreach engine,podman docker buildah,$(if $(shell command -v $(engine)),$(engine))))
image: $(READY)
	@rm -rf dist && $(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null 2>&1
	@$(ENGINE) build --tag abp-transports $(IMAGE_ARGS) --file release/Containerfile .

# docs/compatibility.md
compat: setup
	@$(BIN)/python -m tests.support.compatibility

bench: setup
	@$(BIN)/python -m tests.benchmarks

$(FUZZ) $(MUTATE): $(VENV)/.%: $(READY) requirements/%.txt
	@$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/$*.txt
	@touch $@

# ARGS="--minutes 2 url headers" chooses.
fuzz: $(FUZZ)
	@$(BIN)/python -m tests.fuzz $(ARGS)

# ARGS="--sample 0 binary" takes all of one room.
mutate: $(MUTATE)
	@$(BIN)/python -m tests.support.mutation $(ARGS)

# New versions, with hashes and without the address of any registry.
COMPILE := $(UV) compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade
lock: $(READY)
	@$(COMPILE) --group dev pyproject.toml -o requirements/dev.txt
	@$(COMPILE) --group run pyproject.toml -c requirements/dev.txt -o requirements/run.txt
	@$(COMPILE) --group pyproject.toml:fuzz -c requirements/dev.txt -o requirements/fuzz.txt
	@$(COMPILE) --group pyproject.toml:mutate -c requirements/dev.txt -o requirements/mutate.txt
	@echo uv | $(COMPILE) - -c requirements/dev.txt -o requirements/uv.txt
	@$(COMPILE) --no-annotate --excludes requirements/penguiflow-excluded.txt requirements/penguiflow.in pyproject.toml \
		-o requirements/penguiflow.txt
	@$(COMPILE) --no-annotate requirements/fastmcp.in -o requirements/fastmcp.txt
	@$(COMPILE) --no-annotate --extra pdf --extra images requirements/agents.in pyproject.toml -o requirements/agents.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* demo-output bench-output .fuzz .mutate dist build site
