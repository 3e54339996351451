# Two commands: `make demo` discovers skills in about three minutes, `make test` runs everything CI runs.
# Each sets itself up: a virtual environment in .venv with the pinned versions of requirements.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The theme prints a banner about the future of its generator, which is of no use to a reader of this log.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test docs bench clean

demo: $(VENV)/installed
	$(BIN)/susd train gunner --run runs/demo-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest

docs: $(VENV)/installed-dev
	$(BIN)/mkdocs build --strict

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py

$(VENV)/installed: pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "susd needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint requirements.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint requirements.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) site
