# Two commands are enough: `make demo` and `make test`. Both start from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests wait for browsers and deadlines more than they compute.
WORKERS ?= 3

.PHONY: help setup demo test check bench lock clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    start the reference app, drive it, show the files"
	@echo "make test    everything CI runs: format, lint, types, layers, tests, coverage"
	@echo "make check   format, lint, types and layers only"
	@echo "make bench   speed, as ratios against named baselines"
	@echo "make setup   the virtual environment and a browser"

setup: $(READY)
	@$(BIN)/abp doctor --install

$(READY): pyproject.toml requirements/dev.txt README.md
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) …"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	@$(BIN)/abp demo --out demo-output

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_layers.py

# A lighter Chromium, where Debian has one and may be asked: tests take it if it is there, and do without it if not.
test: setup check
	@test "$$(id -u)" != 0 || command -v chromium-headless-shell >/dev/null || \
		apt-get install -qq -y chromium-headless-shell >/dev/null 2>&1 || true
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --fail-under=95
	@$(BIN)/python -m coverage report --fail-under=100 \
		--include='transports/errors/*.py,transports/protocol/messages.py,transports/protocol/payloads.py,transports/protocol/declarations.py,transports/binary/data.py,transports/binary/detect/*.py'

bench: setup
	@$(BIN)/python -m tests.benchmarks

# New versions, with hashes and without the address of any registry.
lock: $(READY)
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--upgrade --group dev pyproject.toml -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* demo-output bench-output dist build
