# Every target makes its own environment in .venv; nothing but Python 3.11+ and make is needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install demo test test-slow test-newest lint types docs gallery experiments clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

# Learn Beneš, compare with the exact density, leave model and figures in runs/benes.
demo: $(STAMP)
	$(BIN)/diracflow run benes --preset quick --out runs/benes

# Compiled code is kept for later runs, and for the other of the two workers. Programs of tests run
# for milliseconds after seconds of compilation, so LLVM need not optimise them, and the older
# emitters of fused loops, which compile in two thirds of the time, do. Parts of a program that
# threads compile at once take more work together than the whole, and two workers fill two cores.
# BLAS threads of two workers would wait for each other.
FAST := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.pytest_cache/jax \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.1 \
	XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1 $(XLA_FLAGS)" \
	OPENBLAS_NUM_THREADS=1

test: $(STAMP)
	$(FAST) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Whole trainings: more is computed than compiled. With UNTIL, the time in seconds since 1970 after
# which no test is begun.
test-slow: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n 2 --dist loadfile \
		$(if $(UNTIL),-x --until $(UNTIL))

# The other end of the versions: the newest Python that runs here, with the newest that the registry
# gives of everything. A part of the tests that touches every package we import.
NEWEST ?= $(shell .ci/newest-python)
NEWEST_TESTS := $(addprefix tests/,sde/test_sde.py sde/test_laws.py training/test_step.py \
	density/test_files.py uses/test_numpyro.py view/test_lines.py planning/test_settings.py)

test-newest: .venv-newest/installed
	.venv-newest/bin/python -m pytest -n 2 --dist loadfile $(NEWEST_TESTS)

.venv-newest/installed: pyproject.toml
	@test -n "$(NEWEST)" || { echo "No Python after 3.11 runs here; name one with NEWEST=." >&2; exit 1; }
	$(NEWEST) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
		-e '.[infer]' hypothesis pytest pytest-timeout pytest-xdist safetensors
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# The site, in site/; a warning is an error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

# The pictures of the gallery, by the code on its page.
gallery: $(STAMP)
	$(BIN)/python docs/make_gallery.py

# The paper's figures and errors, with the paper's flow: a quarter of an hour and more on two cores.
experiments: $(STAMP)
	$(BIN)/python experiments/paper.py

clean:
	rm -rf .venv .venv-newest runs dist site .pytest_cache .mypy_cache .ruff_cache
