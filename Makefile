# Every target sets up what it needs. PYTHON chooses the interpreter, DATA a folder with data sets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data

.PHONY: install demo test lint bench-accuracy clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plot,dev]"
	touch $@

demo: install
	$(BIN)/python -m onebit.demo --output demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

bench-accuracy: install
	$(BIN)/python benchmarks/accuracy.py --data $(DATA) --output docs/accuracy.md

clean:
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .mypy_cache .hypothesis
