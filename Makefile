# `make tune` and `make test` are the two commands of README.md; both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRIALS ?= 60
MINUTES ?= 5
# The processes that tests start find compiled modules beside the sources; without them each would compile all of torch.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto --dist worksteal --durations 10

.PHONY: tune test lint slow ci proof clean

tune: $(VENV)/ready
	@$(BIN)/autotuner tune --trials $(TRIALS) --minutes $(MINUTES) --out best.json

# The linters, then the fast tests.
test: lint
	@$(PYTEST)

lint: $(VENV)/ready
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/python -m tests.lines
	@$(BIN)/mypy

# The tests that take long.
slow: $(VENV)/ready
	@$(PYTEST) -m slow

# All that every change must pass.
ci: lint
	@$(PYTEST) -m ""

# What is too much for every change: each part writes what it found to docs/results/. Without PART it lists the parts.
proof: $(VENV)/ready
	@$(BIN)/python -m benchmarks.proof $(PART)

# A machine without pip's venv support, or with too old a Python, is told so in one line.
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "autotuner: $(PYTHON) is missing or older than 3.11; set PYTHON=, as in: make PYTHON=python3.12 tune" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
	  echo "autotuner: $(PYTHON) cannot make a virtual environment; install it (apt-get install python3-venv)" >&2; exit 2; }
	@echo "installing into $(VENV) ..."
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# Side by side, as pip does it in one process. Files that are no Python of this version are passed over.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

clean:
	rm -rf $(VENV) studies.db studies.db-wal studies.db-shm best.json
