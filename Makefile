# Everything runs in .venv, made on first use from pyproject.toml and constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export HF_HUB_OFFLINE ?= 1
# One thread per process: two on two busy cores can be slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: run gate test test-slow test-some-slow check format embedded install clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gguf,dev]'
	touch $(STAMP)

run: $(STAMP)
	$(BIN)/specbench run quickstart --csv results/quickstart.csv

# GATE shortens the recipe, CHECK is what else `check` is told.
GATE ?= --num-prompts 12 --repeats 2
CHECK ?=
gate: $(STAMP)
	rm -rf results/gate
	$(BIN)/specbench run ci-gate $(GATE) --output-dir results/gate --quiet
	$(BIN)/specbench check results/gate --junit results/gate.xml $(CHECK)

# Processes that share the tests; each takes about a gigabyte.
WORKERS ?= 2

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not gpu" --durations=15

test-some-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not gpu and not long" --durations=10

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

embedded: $(STAMP)
	$(BIN)/python -m scripts.embedded

clean:
	rm -rf $(VENV) build dist *.egg-info
