# Every target sets up what it needs. PYTHON chooses the interpreter, DATA a folder with data sets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VENV_PEERS := .venv-peers
BIN_PEERS := $(VENV_PEERS)/bin
VENV_GPU := .venv-gpu
BIN_GPU := $(VENV_GPU)/bin
PEERS := libmf smurff cmfrec implicit myfm river scikit-surprise torch
DATA ?= data
MOVIELENS := $(wildcard $(DATA)/ml-100k)
# Compiled modules are kept, whatever the surroundings say: tests start many processes, which would each compile.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo dist test coverage test-gpu test-browser lint study study-sampling docs bench-accuracy bench-certificates bench-peers \
  bench-known bench-sampling bench-updates bench-serve bench-growth bench-gpu bench-dask bench-fuzz bench-ask gallery figures clean

install: $(VENV)/.installed

# What the demo needs, and no more: modules are compiled as they are imported, not all of every package.
$(VENV)/.report: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[report]"
	touch $@

# The tests start many processes: here all is compiled, on all cores. Some packages carry files that do not.
$(VENV)/.installed: $(VENV)/.report
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt \
	  -e ".[report,dask,serve,dev]"
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

demo: $(VENV)/.report
	$(BIN)/onebit demo --output demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

# There is a worker of the tests for each core: threads that libraries start beside them would only wait.
ONE_EACH = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

test: install
	$(BIN)/python -W ignore -m tests.warm_up & $(MAKE) lint; status=$$?; wait; exit $$status
	$(ONE_EACH) $(BIN)/python -m pytest -n auto --dist worksteal

# Lines that the tests run, of all but what numba and Triton compile. The GPU's modules have tests of their own.
coverage: install
	$(ONE_EACH) $(BIN)/python -m pytest -n auto --dist worksteal --cov=onebit --cov-report=term:skip-covered

# The served page in a real browser. Debian's packages are installed where that is allowed; without a browser
# the tests are skipped, and say so.
test-browser: $(VENV)/.browser
	command -v chromedriver > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get \
	  install -y -q chromium chromium-driver; } || echo "chromium-driver does not install here"
	$(BIN)/python -m pytest -rs tests/browser

$(VENV)/.browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	touch $@

# On a GPU where there is one, under Triton's interpreter (and with torch's CPU build) where there is none.
test-gpu: $(VENV_GPU)/.installed
	$(ONE_EACH) $(BIN_GPU)/python -m pytest -n auto --dist worksteal tests/gpu src/onebit/engine/gpu

# torch and Triton beside what the tests need.
$(VENV_GPU)/.installed: pyproject.toml constraints.txt constraints-gpu.txt
	$(PYTHON) -m venv $(VENV_GPU)
	$(BIN_GPU)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt \
	  -c constraints-gpu.txt -e ".[dev,gpu]"
	touch $@

# Wheel and sdist, and the demo from the wheel alone, in an environment that has nothing else.
dist: install
	rm -rf dist build/from-wheel && $(PYTHON) -m venv build/from-wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build hatchling
	$(BIN)/python -m build --no-isolation --outdir dist .
	build/from-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[report]"
	cd build/from-wheel && bin/onebit --version && bin/onebit demo --output demo

study: install
	$(BIN)/onebit study --output docs $(if $(MOVIELENS),--movielens $(MOVIELENS))

study-sampling: install
	$(BIN)/onebit study --sampling --output docs $(if $(MOVIELENS),--movielens $(MOVIELENS),--movielens-splits 0)

# Warnings are errors, a broken link is a warning.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

bench-accuracy: install
	$(BIN)/python -m benchmarks.accuracy --data $(DATA) --output docs/accuracy.md $(if $(RESULTS),--results $(RESULTS))

bench-certificates: install
	$(BIN)/python -m benchmarks.certificates --data $(DATA) --keep build/bench-certificates --output docs/coverage.md
	$(BIN)/python -m benchmarks.certificates --asked --data $(DATA) --keep build/bench-certificates \
	  --output docs/coverage-asked.md

# A peer that does not install is left out of the comparison. pkg_resources, which myfm imports, comes with
# setuptools.
$(VENV_PEERS)/.installed: pyproject.toml constraints-peers.txt
	$(PYTHON) -m venv $(VENV_PEERS)
	$(BIN_PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt -e ".[plot]" setuptools
	for peer in $(PEERS); do \
	  $(BIN_PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt $$peer \
	    || echo "$$peer does not install here and is left out"; \
	done
	touch $@

bench-peers: $(VENV_PEERS)/.installed
	$(BIN_PEERS)/python -m benchmarks.peers --data $(DATA) --output docs/benchmarks.md

bench-known: $(VENV_PEERS)/.installed
	$(BIN_PEERS)/python -m benchmarks.known --data $(DATA) --auto-splits 3 --output docs/known.md

bench-sampling: $(VENV_PEERS)/.installed
	$(BIN_PEERS)/python -m benchmarks.sampling --data $(DATA) --output docs/sampling-peers.md $(if $(RESULTS),--results $(RESULTS))

bench-ask: install
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.asking --data $(DATA) --output docs/asking.md \
	  $(if $(RESULTS),--results $(RESULTS))

bench-updates: $(VENV_PEERS)/.installed
	$(BIN_PEERS)/python -m benchmarks.updates --data $(DATA) --output docs/updates.md

bench-serve: install
	$(BIN)/python -m benchmarks.serving --output docs/serving-load.md

bench-growth: install
	$(BIN)/python -m benchmarks.growth --output docs/growth.md
	$(BIN)/python -m benchmarks.whole_fits --output docs/growth.md $(if $(RESULTS),--results $(RESULTS))

bench-gpu: $(VENV_GPU)/.installed
	$(BIN_GPU)/python -m benchmarks.gpu --output docs/benchmarks.md
	$(BIN_GPU)/python -m benchmarks.gpu.sampling --output docs/sampling-gpu.md

# Half an hour on two cores; what was measured stays in RESULTS, and a run that was stopped goes on.
bench-dask: install
	$(BIN)/python -m benchmarks.distributed --output docs/distributed.md \
	  $(if $(RESULTS),--results $(RESULTS)) $(if $(TABLES),--data $(TABLES))

# The pictures of the pages that show by example; two minutes.
gallery: $(VENV)/.installed
	$(BIN)/python -m benchmarks.gallery

# Every page of docs/ whose figures are older than what they speak of; hours, and each page is kept once it is there.
figures: install
	$(BIN)/python -m benchmarks.figures --data $(DATA)

# Hostile model files and checkpoints, COUNT of them: none may do anything but predict or be refused.
COUNT ?= 10000
bench-fuzz: install
	$(BIN)/python -m benchmarks.fuzz --count $(COUNT)

clean:
	rm -rf $(VENV) $(VENV_PEERS) $(VENV_GPU) build demo dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
