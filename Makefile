# `make tune` and `make test` are the two commands of README.md. Both make .venv first: for `tune` with what tuning needs, for
# all else with the developers' tools as well.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRIALS ?= 60
MINUTES ?= 5
# The processes that tests start find compiled modules beside the sources; without them each would compile all of torch.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto --dist worksteal --durations 10

.PHONY: tune test lint slow ci gpu proof clean

tune: $(VENV)/ready
	@$(BIN)/autotuner tune --trials $(TRIALS) --minutes $(MINUTES) --out best.json

# The linters, then the fast tests.
test: lint
	@$(PYTEST)

lint: $(VENV)/developer
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/python -m tests.lines
	@$(BIN)/mypy

# The tests that take long.
slow: $(VENV)/developer
	@$(PYTEST) -m slow

# All that every change must pass.
ci: lint
	@$(PYTEST) -m ""

# The tests that need a GPU.
gpu: $(VENV)/developer
	@$(PYTEST) -m gpu

# What is too much for every change: each part writes what it found to docs/results/. Without PART it lists the parts.
proof: $(VENV)/developer
	@$(BIN)/python -m benchmarks.proof $(PART)

# A machine without pip's venv support, or with too old a Python, is told so in one line.
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "autotuner: $(PYTHON) is missing or older than 3.11; set PYTHON=, as in: make PYTHON=python3.12 tune" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
	  echo "autotuner: $(PYTHON) cannot make a virtual environment; install it (apt-get install python3-venv)" >&2; exit 2; }
	@echo "installing into $(VENV) ..."
	@$(call install,torch)
	@$(call install,-e .)
	@$(compile)
	@touch $@

$(VENV)/developer: $(VENV)/ready
	@echo "installing the developers' tools into $(VENV) ..."
	@$(call install,-e '.[dev]')
	@$(compile)
	@touch $@

# What is fetched is said on stderr, a line each with its size: torch alone may take minutes. A failure shows pip's last lines.
define install
{ $(BIN)/pip install --no-compile --disable-pip-version-check --progress-bar off -c constraints.txt $(1); \
  echo $$? > $(VENV)/exit; } 2>&1 | tee $(VENV)/install.log | \
  sed -un -e '/\.metadata/d' -e '/^ *\(Downloading\|Using cached\|Processing\|Installing collected\) /p' >&2; \
  [ "$$(cat $(VENV)/exit)" = 0 ] || { tail -n 20 $(VENV)/install.log >&2; exit 2; }
endef

# Side by side, as pip does it in one process, without what nobody imports, a third of all. Files that are no Python of
# this version are passed over.
compile = $(BIN)/python -m compileall -qq -j 0 -x '/tests/|/transformers/models/' $(VENV)/lib || true

clean:
	rm -rf $(VENV) studies.db studies.db-wal studies.db-shm best.json
