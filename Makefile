# `make demo` discovers skills in about three minutes, `make test` runs everything that CI runs.
# Each target sets itself up: a virtual environment in .venv with the pinned versions of requirements.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some tests wait for timeouts of other processes: three workers keep two cores busy.
WORKERS ?= 3
# A file runs on one worker, so that its fixtures are made once.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# The documentation theme prints a banner about another project.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-fast browser lint style types pages docs dist bench bench-gpu skills clean

demo: $(VENV)/installed
	$(BIN)/susd train gunner --run runs/demo-$$(date +%Y%m%d-%H%M%S)

# Everything: style, types, documentation, all tests (one of which compares the generated parts of the documentation).
test: $(VENV)/installed-dev browser
	$(MAKE) --jobs 2 types style pages
	$(PYTEST)

# The tests of the explorer drive a Chromium. It is installed where that is possible; elsewhere these tests are skipped.
browser:
	@for name in chromium chromium-browser google-chrome chrome $$SUSD_BROWSER; do command -v $$name >/dev/null && exit 0; done; \
	root=; test "$$(id -u)" = 0 || root="sudo -n"; \
	{ command -v apt-get && $$root apt-get update -qq && $$root apt-get install -qq --yes --no-install-recommends chromium; } \
		>/dev/null 2>&1 || echo "no Chromium can be installed here: the tests of the explorer's page are skipped"

# For every edit.
test-fast: lint
	$(PYTEST) -m "not slow"

lint: types style

types: $(VENV)/installed-dev
	$(BIN)/mypy

style: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The site builds without a warning.
pages: $(VENV)/installed-dev
	$(BIN)/mkdocs build --strict --quiet

# Write the generated parts of README and docs/ into the files, then build the site in site/.
docs: $(VENV)/installed-dev
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict

# Build sdist and wheel, check them, and use the wheel in a clean environment.
dist: $(VENV)/installed-dev
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --clear dist/venv
	dist/venv/bin/pip install --quiet --constraint requirements.txt dist/*.whl
	cd dist && venv/bin/susd --version && venv/bin/susd methods && venv/bin/susd config gunner && venv/bin/susd suite list && venv/bin/susd skills
	rm -rf dist/venv

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py

# Rates on all devices that JAX finds; on a machine with GPUs install the accelerator first: .venv/bin/pip install '.[cuda13]'
bench-gpu: $(VENV)/installed
	$(BIN)/python benchmarks/gpu.py

# Train the skills that come with the package; hours, and resumable.
skills: $(VENV)/installed
	$(BIN)/python benchmarks/ship_skills.py

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
	rm -rf $(VENV) site dist
