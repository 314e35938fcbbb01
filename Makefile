# Every target sets up .venv by itself; tests run against the installed package, never the source tree.

PYTHON ?= python3
JOBS ?= 2
RANKS ?= 1 2 3 4

VENV := .venv
BIN := $(VENV)/bin
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-cpp test-single test-parallel test-heap test-faults test-distributed test-hosts test-mpi test-frameworks test-caffe fuzz fuzz-python fuzz-cpp mutants bench \
        lint lint-python lint-cpp lint-aarch64 format docs install clean

help:
	@echo "make demo    train a small model on two processes"
	@echo "make test    C++ tests (also under sanitizers), Python at 1 to 4 ranks, faults, hosts, MPI"
	@echo "make fuzz    search for bytes from strangers and liars that are not refused properly"
	@echo "make mutants plant faults and list those that no test notices; MUTANTS=60 of them"
	@echo "make bench   measure against the peers"
	@echo "make lint    ruff, mypy, clang-format, cross-compilation for aarch64"
	@echo "make format  rewrite the code as lint wants it"
	@echo "make docs    this project's pages, in docs/_build/html"
	@echo "make clean   remove what was built (.venv stays)"

# ---- The environment. A stamp's age says whether the step is to be done again. ----

REQUIREMENTS := $(VENV)/.requirements
INSTALLED := $(VENV)/.installed
# Folders count too: their time changes when a file is removed.
PACKAGE := pyproject.toml CMakeLists.txt compat/horovod/pyproject.toml \
  $(shell find cpp python -not -path '*/__pycache__*')

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(REQUIREMENTS): tools/requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --requirement $<
	@touch $@

$(VENV)/.requirements-%: tools/requirements-%.txt $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --requirement $<
	@touch $@

$(INSTALLED): $(PACKAGE) $(REQUIREMENTS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
	  --force-reinstall --config-settings=cmake.define.SIRTAKI_WERROR=ON . ./compat/horovod
	@touch $@

install: $(INSTALLED)

# ---- Use ----

demo: $(INSTALLED)
	$(BIN)/horovodrun -np 2 $(BIN)/python examples/pytorch_mnist.py --compare-single

bench: $(INSTALLED) $(VENV)/.requirements-bench .venv-mpich/.requirements .venv-impi/.requirements
	$(BIN)/python benchmarks/run.py

docs: $(INSTALLED) $(VENV)/.requirements-docs $(VENV)/.requirements-frameworks
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# ---- Test ----

test: test-cpp test-single test-parallel test-heap test-faults test-distributed test-hosts test-mpi test-frameworks test-caffe

# All three at once: while one is linked or waits for its threads, another uses the cores.
test-cpp: $(REQUIREMENTS)
	$(MAKE) --no-print-directory -j3 --output-sync test-cpp-plain test-cpp-thread test-cpp-address

# The thread sanitizer of older compilers needs addresses that are not randomised beyond its map.
test-cpp-thread: RUN := $(shell setarch -R true 2>/dev/null && echo setarch -R)
# One thread's arithmetic has no races.
test-cpp-thread: CHOICE := --source-file-exclude='*/math_*,*/heap_runs_*,*/cut_*,*/*plan_*'

test-cpp-%: $(REQUIREMENTS)
	$(BIN)/cmake -S . -B build/cpp-$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DSIRTAKI_TESTS=ON -DSIRTAKI_SANITIZE=$(filter-out plain,$*) --log-level=WARNING
	$(BIN)/cmake --build build/cpp-$* --target sirtaki_tests
	$(RUN) build/cpp-$*/sirtaki_tests $(CHOICE)

test-single: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/single

# One thread a rank: four ranks of a few threads each would wait for one another's cores.
test-parallel: $(INSTALLED)
	@set -e; for ranks in $(RANKS); do \
	  echo "tests/parallel at $$ranks ranks"; \
	  OMP_NUM_THREADS=1 $(BIN)/horovodrun -np $$ranks \
	    $(BIN)/python -m pytest -p no:cacheprovider tests/parallel; \
	done

# The same once more with tensors where the other ranks can map them.
HEAP_RANKS ?= 2 4
test-heap: $(INSTALLED)
	@set -e; for ranks in $(HEAP_RANKS); do \
	  echo "tests/parallel at $$ranks ranks with the shared heap"; \
	  OMP_NUM_THREADS=1 $(BIN)/horovodrun -np $$ranks --shared-heap \
	    $(BIN)/python -m pytest -p no:cacheprovider tests/parallel; \
	done

test-faults: $(INSTALLED)
	$(BIN)/python -m pytest tests/faults

# A process group's operations at some numbers of ranks, then whole jobs, and PyTorch's own suite.
test-distributed: $(INSTALLED)
	@set -e; for ranks in 1 2 3; do \
	  echo "tests/distributed/ranks at $$ranks ranks"; \
	  OMP_NUM_THREADS=1 $(BIN)/python -m torch.distributed.run --nproc-per-node $$ranks \
	    -m pytest -p no:cacheprovider tests/distributed/ranks; \
	done
	$(BIN)/python -m pytest --ignore tests/distributed/ranks tests/distributed

# TensorFlow and JAX; Keras on each of its backends.
RUN_RANKS = OMP_NUM_THREADS=1 $(BIN)/horovodrun -np $(1) $(BIN)/python -m pytest -p no:cacheprovider
test-frameworks: $(INSTALLED) $(VENV)/.requirements-frameworks
	@set -e; for ranks in 1 2 3; do \
	  echo "TensorFlow and JAX at $$ranks ranks"; \
	  $(call RUN_RANKS,$$ranks) tests/frameworks/tensorflow/ranks; \
	  $(call RUN_RANKS,$$ranks) tests/frameworks/jax/ranks; \
	done
	@set -e; for backend in tensorflow torch jax; do \
	  echo "Keras on $$backend at 2 ranks"; \
	  KERAS_BACKEND=$$backend $(call RUN_RANKS,2) tests/frameworks/keras/ranks; \
	done
	KERAS_BACKEND=tensorflow $(call RUN_RANKS,3) tests/frameworks/keras/ranks
	$(BIN)/python -m pytest $(wildcard tests/frameworks/test_*.py tests/frameworks/*/test_*.py)

# Nets of Caffe: files, layers, solvers and whole jobs.
test-caffe: $(INSTALLED) $(VENV)/.requirements-mpi $(VENV)/.requirements-caffe
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/caffe

# Both MPIs, each with our own transports and with MPI's. MPI_TESTS=tests/parallel runs everything.
MPI_TESTS ?= tests/parallel/core
MPICH := .venv-mpich
OPEN_MPI_RUN := $(BIN)/mpirun --allow-run-as-root --oversubscribe -np 2 $(BIN)/python
MPICH_RUN := $(MPICH)/bin/mpirun -np 2 $(MPICH)/bin/python
PYTEST_OF_A_RANK := -m pytest -p no:cacheprovider

# Another MPI has an environment of its own, beside .venv's packages: all of them name theirs mpirun.
.venv-%/.requirements: tools/requirements-%.txt $(REQUIREMENTS)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	@touch $@

test-mpi: export OMP_NUM_THREADS := 1
test-mpi: $(INSTALLED) $(VENV)/.requirements-mpi $(MPICH)/.requirements
	@set -e; for backend in native mpi; do \
	  echo "$(MPI_TESTS) under Open MPI and MPICH, backend $$backend"; \
	  SIRTAKI_BACKEND=$$backend $(OPEN_MPI_RUN) $(PYTEST_OF_A_RANK) $(MPI_TESTS); \
	  SIRTAKI_BACKEND=$$backend $(MPICH_RUN) $(PYTEST_OF_A_RANK) $(MPI_TESTS); \
	done
	$(OPEN_MPI_RUN) $(PYTEST_OF_A_RANK) tests/mpi/ranks
	$(MPICH_RUN) $(PYTEST_OF_A_RANK) tests/mpi/ranks
	$(BIN)/python -m pytest tests/mpi/jobs
	$(MPICH)/bin/python -m pytest tests/mpi/jobs

test-hosts: $(INSTALLED) $(VENV)/.requirements-caffe
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/hosts

FUZZ_SECONDS ?= 60
fuzz: fuzz-python fuzz-cpp

fuzz-python: $(INSTALLED) $(VENV)/.requirements-fuzz $(VENV)/.requirements-caffe
	$(BIN)/python tests/fuzz/fuzz_parsers.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096
	$(BIN)/python tests/fuzz/fuzz_caffe_files.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096

CLANG_CXX ?= clang++
fuzz-cpp: $(REQUIREMENTS)
	@if ! command -v $(CLANG_CXX) >/dev/null; then \
	  echo "fuzz-cpp: skipped, $(CLANG_CXX) is not installed"; \
	else \
	  $(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_CXX_COMPILER=$(CLANG_CXX) -DSIRTAKI_FUZZ=ON --log-level=WARNING && \
	  $(BIN)/cmake --build build/fuzz --target sirtaki_fuzz && \
	  build/fuzz/sirtaki_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -print_final_stats=1; \
	fi

MUTANTS ?= 60
MUTANTS_SEED ?= 0
MUTANTS_OF ?= core torch rendezvous
mutants: $(INSTALLED) $(VENV)/.requirements-mutants
	$(BIN)/python tools/mutants.py --count $(MUTANTS) --seed $(MUTANTS_SEED) --jobs $(JOBS) $(MUTANTS_OF)

# ---- Lint ----

CPP_FILES = $(shell find cpp tests/cpp tests/fuzz -name '*.cpp' -o -name '*.h')

lint: lint-python lint-cpp lint-aarch64

lint-python: $(REQUIREMENTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-cpp: $(REQUIREMENTS)
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

AARCH64_CXX ?= aarch64-linux-gnu-g++
lint-aarch64: $(REQUIREMENTS)
	@if ! command -v $(AARCH64_CXX) >/dev/null; then \
	  echo "lint-aarch64: skipped, $(AARCH64_CXX) is not installed"; \
	else \
	  $(BIN)/cmake -S . -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_CXX_COMPILER=$(AARCH64_CXX) --log-level=WARNING && \
	  $(BIN)/cmake --build build/aarch64 --target sirtaki_core sirtaki_heap; \
	fi

format: $(REQUIREMENTS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(INSTALLED)
