# Every target sets up .venv by itself; tests run against the installed package, never the source tree.

PYTHON ?= python3
JOBS ?= 2
RANKS ?= 1 2 3 4

VENV := .venv
BIN := $(VENV)/bin
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without it each of the many processes of the tests compiles every test file anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test test-all test-rest nightly $(addprefix test-,cpp cpp-thread cpp-address single parallel \
  faults distributed group-ranks group-jobs hosts install mpi open-mpi mpich frameworks framework-ranks framework-jobs libraries loggers kubernetes ray spark caffe) \
  try-frameworks wheel wheels test-wheels test-containers \
  fuzz fuzz-python fuzz-cpp findings chaos simulate simulate-faults mutants bench lint lint-python lint-cpp lint-aarch64 lint-prose format docs docs-check install clean

help:
	@echo "make demo     what this is, on two processes, in three minutes"
	@echo "make check    lint, C++ and what starts no job, of what has changed: while you work"
	@echo "make test     every part, at the numbers of ranks that matter: ten minutes"
	@echo "make test-all the rest, races, fuzz: half an hour more"
	@echo "make nightly  planted faults, long fuzz, every number of ranks: hours"
	@echo "make test-X   one suite; tools/stages/table.py has them all"
	@echo "make try-frameworks the oldest and newest versions of the frameworks"
	@echo "make bench    measure against the peers"
	@echo "make lint     ruff, mypy, clang-format, cross-compilation for aarch64"
	@echo "make format   rewrite the code as lint wants it"
	@echo "make wheel    a wheel for this machine, in dist"
	@echo "make wheels   what is published, in wheelhouse"
	@echo "make docs     this project's pages, in docs/_build/html; make docs-check looks at them in a browser"
	@echo "make clean    remove what was built (.venv stays)"

# ---- The environment. A stamp's age says whether the step is to be done again. ----

BUILT_BY := $(VENV)/.requirements-build
RUNS_ON := $(VENV)/.requirements-run
REQUIREMENTS := $(VENV)/.requirements
WHEELS := dist/.built
PACKAGE_INSTALLED := $(VENV)/.installed
# For all that checks the package.
INSTALLED := $(PACKAGE_INSTALLED) $(REQUIREMENTS)
# The package is compiled once, here; the C++ tests link what it is made of.
BUILD := build/package
CPP_FILES := $(shell find cpp tests/cpp tests/fuzz -name '*.cpp' -o -name '*.h')
# Folders count too: their time changes when a file is removed.
PACKAGE := pyproject.toml CMakeLists.txt compat/horovod/pyproject.toml sirtaki-caffe/pyproject.toml \
  $(shell find cpp python sirtaki-caffe/python -not -path '*/__pycache__*')

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BUILT_BY) $(RUNS_ON): $(VENV)/.requirements-%: tools/requirements-%.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --requirement $<
	@touch $@

# Tests start thousands of processes, whose imports need neither hundreds of garbage collections nor, in Keras, what
# ABSENT_MODULES names: half of the time of importing TensorFlow.
QUICK_START = cp tools/quick_start.pth "$$($(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
$(REQUIREMENTS): tools/requirements-dev.txt tools/quick_start.pth $(BUILT_BY) $(RUNS_ON)
	$(BIN)/python -m pip install --quiet --requirement $<
	@$(call QUICK_START,$(BIN)/python)
	@touch $@

$(VENV)/.requirements-%: tools/requirements-%.txt $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --requirement $<
	@touch $@

# Wheels of the same files for the same Python serve, however new the files are: in a clone into which dist was copied, or
# on a branch to which one has returned.
MADE_OF = { $(BIN)/python -VV; find $(PACKAGE) third_party tools/requirements-build.txt -type f \
  -not -path '*/__pycache__/*' | LC_ALL=C sort -u | xargs sha256sum; } | sha256sum
# Another compiler may know other warnings; .ci/run turns them into errors.
WERROR ?= OFF
$(WHEELS): $(PACKAGE) $(BUILT_BY)
	@made_of="$$($(MADE_OF))"; if [ "$$made_of" = "$$(cat dist/.made-of 2>/dev/null)" ]; then \
	  echo "dist has the wheels of these files"; \
	else set -e; rm -rf dist; echo "building the wheels in dist"; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	    --config-settings=cmake.define.SIRTAKI_WERROR=$(WERROR) --config-settings=cmake.define.SIRTAKI_TESTS=ON \
	    --config-settings=build-dir=$(BUILD) --wheel-dir dist . ./compat/horovod ./sirtaki-caffe; \
	  echo "$$made_of" > dist/.made-of; \
	fi
	@touch $@

# Not when a folder's time alone has changed: tests of another stage may be importing the package.
$(PACKAGE_INSTALLED): $(WHEELS)
	@cmp -s dist/.made-of $@ || { set -e; \
	  echo "installing the wheels of dist"; \
	  $(BIN)/python -m pip install --quiet --no-deps --force-reinstall dist/*.whl; \
	}
	@cp dist/.made-of $@

install: $(INSTALLED)

# ---- Use ----

# PyTorch comes while the package is compiled.
demo:
	@$(MAKE) --no-print-directory --jobs=2 $(RUNS_ON) $(PACKAGE_INSTALLED)
	$(BIN)/sirtaki demo

bench: $(INSTALLED) $(VENV)/.requirements-bench .venv-mpich/.requirements .venv-impi/.requirements
	$(BIN)/python benchmarks/run.py

docs: $(INSTALLED) $(VENV)/.requirements-docs $(VENV)/.requirements-frameworks
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python -m tools.site.crawl docs/_build/html
	@echo "docs/_build/html/index.html"

# The pages in a browser: needs node, npm and Chromium. Pictures of some are in build/site-check/pages.
SITE_CHECK := build/site-check
docs-check: docs
	@mkdir -p $(SITE_CHECK)
	cp tools/site/browse.mjs tools/site/package.json $(SITE_CHECK)
	cd $(SITE_CHECK) && npm install --no-package-lock --no-audit --no-fund --silent
	node $(SITE_CHECK)/browse.mjs docs/_build/html $(SITE_CHECK)/pages
	$(BIN)/python -m tools.site.top $(SITE_CHECK)/top --axe $(SITE_CHECK)/node_modules/axe-core/axe.min.js

# ---- Test ----

# What a tier runs and how long each stage may take is in tools/stages/table.py; a stage is a target below.
CORES ?= $(JOBS)
TIER = $(BIN)/python -m tools.stages --cores $(CORES)
ENVIRONMENTS := $(REQUIREMENTS) $(VENV)/.requirements-frameworks $(VENV)/.requirements-caffe $(VENV)/.requirements-mpi

check: $(REQUIREMENTS)
	$(TIER) check

test: $(ENVIRONMENTS)
	$(TIER) test

test-all: $(ENVIRONMENTS) $(VENV)/.requirements-fuzz .venv-mpich/.requirements .venv-trainers/.requirements
	$(TIER) test-all

# What .ci/run adds to these.
test-rest: $(ENVIRONMENTS) $(VENV)/.requirements-docs
	$(TIER) rest

nightly: $(ENVIRONMENTS) $(VENV)/.requirements-mutants $(VENV)/.requirements-fuzz .venv-mpich/.requirements \
  .venv-libraries/.requirements .venv-kubernetes/.requirements .venv-ray/.requirements .venv-spark/.requirements \
  .venv-dask/.requirements .venv-loggers/.requirements
	$(TIER) nightly

# Stages of `make check`: each is done again only when what it looks at has changed since it passed.
CHECKED := build/check
PYTHON_FILES := $(shell find python tests tools benchmarks examples docs -name '*.py' -o -name '*.pyi')
check-lint: $(CHECKED)/python $(CHECKED)/cpp-format
check-cpp: $(CHECKED)/cpp
check-single: $(CHECKED)/single
check-core: $(CHECKED)/core

$(CHECKED)/python: pyproject.toml $(PYTHON_FILES) | $(REQUIREMENTS)
	$(MAKE) --no-print-directory lint-python
	@mkdir -p $(@D) && touch $@

$(CHECKED)/cpp-format: .clang-format $(CPP_FILES) | $(REQUIREMENTS)
	$(BIN)/clang-format --dry-run --Werror $(filter %.cpp %.h,$?)
	@mkdir -p $(@D) && touch $@

$(CHECKED)/cpp: build/package/sirtaki_tests
	$(MAKE) --no-print-directory test-cpp CPP_CHOICE=--test-suite-exclude=slow
	@mkdir -p $(@D) && touch $@

# Files that a change can reach by imports; all of them at first.
$(CHECKED)/single: $(CPP_FILES) $(PYTHON_FILES) $(wildcard *.md docs/*.md docs/*/*.md docs/*/*/*.md Makefile pyproject.toml) | $(INSTALLED)
	@mkdir -p $(@D)
	$(BIN)/python -m tools.touched $(if $(wildcard $@),$?,--all) > $@.files
	xargs -r -a $@.files $(BIN)/python -m pytest -m "not job and not slow and not nightly" -n $(CORES) --dist worksteal
	@touch $@

$(CHECKED)/core: $(CPP_FILES) $(wildcard python/sirtaki/*.py) $(shell find $(patsubst %,python/sirtaki/%,core launch numpy rendezvous schedulers) \
    tests/parallel/core -name '*.py') | $(INSTALLED)
	$(MAKE) --no-print-directory test-parallel RANKS=2 RANK_TESTS=tests/parallel/core MARKS="not slow"
	@mkdir -p $(@D) && touch $@

# MARKS chooses among tests as pytest's -m does; WORKERS is how many are run at a time where most of them wait.
MARKS ?=
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest -m "$(MARKS)"
SPREAD = -n $(WORKERS) --dist worksteal
# Files whose tests share what is made once stay together.
SPREAD_FILES = -n $(WORKERS) --dist loadfile
RANK_PYTEST = -m pytest -p no:cacheprovider -m "$(MARKS)"
# One thread a rank: several ranks of a few threads each would wait for one another's cores.
HOROVODRUN = OMP_NUM_THREADS=1 $(BIN)/horovodrun -np
# $(call at_ranks,numbers of ranks,flags,tests)
define at_ranks
@set -e; for ranks in $(1); do \
  echo "$(3) at $$ranks ranks $(2)"; \
  $(HOROVODRUN) $$ranks $(2) $(BIN)/python $(RANK_PYTEST) $(3); \
done
endef

# Beside the package, of whose objects they are made.
CPP_TESTS := $(BUILD)/sirtaki_tests
$(CPP_TESTS): CMakeLists.txt $(CPP_FILES) | $(WHEELS)
	@test -e $(BUILD)/build.ninja || { rm -rf dist && $(MAKE) --no-print-directory $(WHEELS); }
	$(BIN)/cmake --build $(BUILD) --target sirtaki_tests
	@touch $@

# Half of the cases beside the other half: many of them only wait.
test-cpp: $(CPP_TESTS)
	@half=$$(( ($$($(CPP_TESTS) --count $(CPP_CHOICE) | grep -o '[0-9]*$$') + 1) / 2 )); \
	$(CPP_TESTS) $(CPP_CHOICE) --last=$$half & \
	$(CPP_TESTS) $(CPP_CHOICE) --first=$$((half + 1)); second=$$?; \
	wait $$! && exit $$second

# As many seeds as you like, from any; half of them beside the other half.
SEEDS ?= 2000
FIRST ?= 1
SIMULATE = SIRTAKI_SIMULATE_SEEDS=$(1) SIRTAKI_SIMULATE_FIRST=$(2) $(CPP_TESTS) --test-suite=simulation
simulate: $(CPP_TESTS)
	@half=$$((($(SEEDS) + 1) / 2)); \
	$(call SIMULATE,$$half,$(FIRST)) & \
	$(call SIMULATE,$$(($(SEEDS) - half)),$$(($(FIRST) + half))); second=$$?; \
	wait $$! && exit $$second

simulate-faults: $(REQUIREMENTS)
	$(BIN)/python -m tools.mutants.simulated

# The thread sanitizer of older compilers needs addresses that are not randomised beyond its map.
test-cpp-thread: RUN := $(shell setarch -R true 2>/dev/null && echo setarch -R)

test-cpp-thread test-cpp-address: test-cpp-%: $(REQUIREMENTS)
	$(BIN)/cmake -S . -B build/cpp-$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DSIRTAKI_TESTS=ON -DSIRTAKI_SANITIZE=$* --log-level=WARNING
	$(BIN)/cmake --build build/cpp-$* --target sirtaki_tests
	$(RUN) build/cpp-$*/sirtaki_tests $(CPP_CHOICE)

test-single: $(INSTALLED)
	$(PYTEST) $(SPREAD) tests/single

RANKS ?= 1 2 3 4
RANK_TESTS ?= tests/parallel
test-parallel: $(INSTALLED)
	$(call at_ranks,$(RANKS),,$(RANK_TESTS))

test-faults: $(INSTALLED)
	$(PYTEST) $(SPREAD) tests/faults

# A process group's operations; whole jobs, and PyTorch's own suite.
test-distributed: test-group-ranks test-group-jobs

GROUP_RANKS ?= 1 2 3
test-group-ranks: $(INSTALLED)
	@set -e; for ranks in $(GROUP_RANKS); do \
	  echo "tests/distributed/ranks at $$ranks ranks"; \
	  OMP_NUM_THREADS=1 $(BIN)/python -m torch.distributed.run --nproc-per-node $$ranks \
	    $(RANK_PYTEST) tests/distributed/ranks; \
	done

test-group-jobs: $(INSTALLED)
	$(PYTEST) $(SPREAD_FILES) --ignore tests/distributed/ranks --ignore tests/distributed/libraries tests/distributed

# Libraries on torch.distributed. They need packages that nothing else here does.
LIBRARIES ?= .venv-libraries
test-libraries: $(INSTALLED) $(LIBRARIES)/.requirements
	$(LIBRARIES)/bin/python -m pytest -m "$(MARKS)" -n $(JOBS) tests/distributed/libraries

# What RateLog writes to.
LOGGERS := .venv-loggers
test-loggers: $(INSTALLED) $(LOGGERS)/.requirements
	$(LOGGERS)/bin/python -m pytest -m "$(MARKS)" tests/loggers

# Systems that start processes themselves. Each test session starts one of them.
test-kubernetes test-ray test-dask test-spark: test-%: $(INSTALLED) .venv-%/.requirements
	.venv-$*/bin/python -m pytest -m "$(MARKS)" tests/clusters/$*
# An estimator trains a model of Keras.
test-spark: $(VENV)/.requirements-frameworks

# TensorFlow and JAX; Keras on some of its backends; whole jobs.
test-frameworks: test-framework-ranks test-framework-jobs

FRAMEWORK_RANKS ?= 1 2 3
KERAS_BACKENDS ?= tensorflow torch jax
KERAS_RANKS ?= 2 3
# Keras imports them to draw and to wrap; examples take digits from the second.
test-framework-ranks: export ABSENT_MODULES := matplotlib sklearn
test-framework-jobs: export ABSENT_MODULES := matplotlib
test-framework-ranks: $(INSTALLED) $(VENV)/.requirements-frameworks
	$(call at_ranks,$(FRAMEWORK_RANKS),,tests/frameworks/tensorflow/ranks)
	$(call at_ranks,$(FRAMEWORK_RANKS),,tests/frameworks/jax/ranks)
	@set -e; for backend in $(KERAS_BACKENDS); do export KERAS_BACKEND=$$backend; for ranks in $(KERAS_RANKS); do \
	  echo "Keras on $$backend at $$ranks ranks"; \
	  $(HOROVODRUN) $$ranks $(BIN)/python $(RANK_PYTEST) tests/frameworks/keras/ranks; \
	done; done

test-framework-jobs: $(INSTALLED) $(VENV)/.requirements-frameworks
	$(PYTEST) $(SPREAD) $(wildcard tests/frameworks/test_*.py tests/frameworks/*/test_*.py)

# Oldest, pinned and newest versions, each in an environment of its own, at 2 ranks: docs/reference/versions.md has the results.
# TRY chooses by names, as TRY="torch-newest-*"; PRE=1 takes pre-releases.
TRY ?= *
try-frameworks: $(INSTALLED)
	$(BIN)/python -m tools.versions $(if $(PRE),--pre) $(foreach name,$(TRY),'$(name)')

# Nets of Caffe: files, layers, solvers and whole jobs.
test-caffe: $(INSTALLED) $(VENV)/.requirements-mpi $(VENV)/.requirements-caffe
	OMP_NUM_THREADS=1 $(PYTEST) $(SPREAD_FILES) sirtaki-caffe/caffe_tests

# MPIs, each with our own transports and with its own. MPI_TESTS=tests/parallel runs everything.
MPIS ?= open-mpi mpich
MPI_BACKENDS ?= native mpi
MPI_TESTS ?= tests/parallel/core
MPICH := .venv-mpich
OPEN_MPI_RUN := $(BIN)/mpirun --allow-run-as-root --oversubscribe -np 2 $(BIN)/python
MPICH_RUN := $(MPICH)/bin/mpirun -np 2 $(MPICH)/bin/python

# An environment of its own beside .venv's packages: for another MPI, as all of them name theirs mpirun, and for libraries.
.venv-%/.requirements: tools/requirements-%.txt $(REQUIREMENTS)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	@$(call QUICK_START,$(@D)/bin/python)
	@touch $@

.venv-libraries/.requirements: tools/requirements-trainers.txt

test-mpi: $(addprefix test-,$(MPIS))

test-open-mpi test-mpich: export OMP_NUM_THREADS := 1
test-open-mpi: MPI_RUN = $(OPEN_MPI_RUN)
test-open-mpi: $(INSTALLED) $(VENV)/.requirements-mpi
test-mpich: MPI_RUN = $(MPICH_RUN)
test-mpich: $(INSTALLED) $(MPICH)/.requirements
test-open-mpi test-mpich:
	@set -e; for backend in $(MPI_BACKENDS); do \
	  echo "$(MPI_TESTS) under $@, backend $$backend"; \
	  SIRTAKI_BACKEND=$$backend $(MPI_RUN) $(RANK_PYTEST) $(MPI_TESTS); \
	done
	$(MPI_RUN) $(RANK_PYTEST) tests/mpi/ranks
	$(firstword $(filter %/python,$(MPI_RUN))) -m pytest -m "$(MARKS)" tests/mpi/jobs

test-hosts: $(INSTALLED) $(VENV)/.requirements-caffe
	$(PYTEST) $(SPREAD_FILES) tests/hosts

# What other software does where one would guess otherwise; names those that have changed.
findings:
	@set +e; changed=; for each in findings/*.sh; do \
	  echo "== $$each"; sh $$each || changed="$$changed $$each"; done; \
	[ -z "$$changed" ] || { echo "Changed:$$changed"; exit 1; }

# Fault after fault on an elastic job over virtual hosts. A seed replays its schedule; none: a random one.
MINUTES ?= 2
SEED ?=
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	  $(if $(REPRODUCIBLE),--reproducible)

# What a user does: an environment with nothing but the package and what it depends on.
FROM ?= dist/sirtaki-*.whl dist/horovod-*.whl
PLAIN := build/plain
WORLD := import importlib.metadata, sirtaki; \
  print("sirtaki", sirtaki.__version__, "as horovod", importlib.metadata.version("horovod"))
test-install: $(WHEELS)
	rm -rf $(PLAIN)
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/pip install --quiet $(FROM)
	$(PLAIN)/bin/horovodrun -np 2 $(CURDIR)/$(PLAIN)/bin/python -c '$(WORLD)'
	$(PLAIN)/bin/pip check
	test ! -e $(PLAIN)/bin/caffe

# ---- Release ----

# For this machine and the Python of .venv.
wheel: $(WHEELS)
	@echo "pip install $$(ls dist/sirtaki-*.whl)"

# By every Python that is here, or those that PYTHONS names.
PYTHONS ?=
wheels: $(VENV)/.requirements-wheels
	$(BIN)/python -m tools.wheels $(if $(PYTHONS),--python $(PYTHONS))

test-wheels: $(INSTALLED) wheels
	$(PYTEST) tests/wheels

test-containers: $(INSTALLED)
	$(PYTEST) tests/containers

FUZZ_SECONDS ?= 60
fuzz: fuzz-python fuzz-cpp

fuzz-python: $(INSTALLED) $(VENV)/.requirements-fuzz $(VENV)/.requirements-caffe
	$(BIN)/python tests/fuzz/fuzz_parsers.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096
	$(BIN)/python tests/fuzz/fuzz_caffe_files.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096

CLANG_CXX ?= clang++
fuzz-cpp: $(REQUIREMENTS)
	@if ! command -v $(CLANG_CXX) >/dev/null; then \
	  echo "SKIPPED fuzz-cpp: missing: $(CLANG_CXX)"; \
	else \
	  $(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_CXX_COMPILER=$(CLANG_CXX) -DSIRTAKI_FUZZ=ON --log-level=WARNING && \
	  $(BIN)/cmake --build build/fuzz --target sirtaki_fuzz && \
	  build/fuzz/sirtaki_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -print_final_stats=1; \
	fi

MUTANTS ?= 64
MUTANTS_SEED ?= 0
MUTANTS_OF ?=
mutants: $(INSTALLED) $(ENVIRONMENTS) $(VENV)/.requirements-mutants
	$(BIN)/python -m tools.mutants --count $(MUTANTS) --seed $(MUTANTS_SEED) --jobs $(JOBS) $(MUTANTS_OF)

# ---- Lint ----

lint: lint-python lint-cpp lint-aarch64 lint-prose

lint-python: $(REQUIREMENTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-prose: $(REQUIREMENTS)
	$(BIN)/python -m tools.prose

lint-cpp: $(REQUIREMENTS)
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

AARCH64_CXX ?= aarch64-linux-gnu-g++
lint-aarch64: $(REQUIREMENTS)
	@if ! command -v $(AARCH64_CXX) >/dev/null; then \
	  echo "lint-aarch64: skipped, $(AARCH64_CXX) is not installed"; \
	else \
	  $(BIN)/cmake -S . -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_BUILD_TYPE=Debug \
	    -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_CXX_COMPILER=$(AARCH64_CXX) --log-level=WARNING \
	    -DSIRTAKI_BENCHMARKS=ON && \
	  $(BIN)/cmake --build build/aarch64 --target sirtaki_control_plane; \
	fi

format: $(REQUIREMENTS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf build dist wheelhouse docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(PACKAGE_INSTALLED)
