# Each target makes its own virtual environment and installs what it needs.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo serve-demo test test-all check lint docs bench results results-full clean

demo: $(VENV)/.runtime
	$(BIN)/fairhorizon demo --out demo

# Fits MovieLens-100K, serves it at http://127.0.0.1:8088 and sends two minutes of simulated traffic.
serve-demo: $(VENV)/.service
	test -f demo/service/run.json || $(BIN)/fairhorizon fit fcpo --data ml-100k --all \
	  --limit 'popular<=0.4' --limit 'genre=Documentary>=0.03' --out demo/service
	$(BIN)/python examples/serve_demo.py --run demo/service

# What a change needs to be safe: below 5 minutes on two cores.
test: $(VENV)/.development
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow or essential"

# All tests: first those of `make test`, then crashes, faults of Ray, memory, commands of documents,
# benchmarks, PostgreSQL throughout. While one of three processes waits for a server, two work.
test-all: test
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "slow and not essential"

check: lint test

lint: $(VENV)/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in site/: a broken link or an undocumented public name fails.
docs: $(VENV)/.documents
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html: open it in a browser; with search: $(BIN)/python -m http.server -d site"

bench: $(VENV)/.development
	@echo "bpr, ease, exposure, speed, long_run: 1 to 4 minutes each; constraint: about 15 minutes"
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/bpr.py
	$(BIN)/python benchmarks/ease.py
	$(BIN)/python benchmarks/exposure.py
	$(BIN)/python benchmarks/long_run.py
	$(BIN)/python benchmarks/one_user.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/constraint.py

# The studies behind README and docs/results, then their tables. Interrupted, it continues where it was.
results: $(VENV)/.development
	@echo "at most 90 minutes on two cores"
	$(BIN)/python benchmarks/results.py

# The same with 5 seeds (MovieLens-1M: 3), fcpo:strong and GRU4Rec; begins with what is in results/.
results-full: $(VENV)/.development
	@echo "many hours on two cores: what each study took last time is printed first"
	$(BIN)/python benchmarks/results.py --full

clean:
	rm -rf $(VENV) demo site

$(VENV)/bin/python:
	$(shell command -v $(PYTHON) || echo python3) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[tune]'
	touch $@

$(VENV)/.service: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[service]'
	touch $@

$(VENV)/.documents: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.development: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.runtime $(VENV)/.documents $(VENV)/.service
