# Everything a developer does. Each target creates what it needs in .venv and build/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := CMakeLists.txt pyproject.toml $(shell find csrc -name '*.cc' -o -name '*.h')
FRAMES ?= 1000000
TSAN_SKIP ?= fuzz
PYTEST_ARGS ?=

.PHONY: help demo test test-core test-python test-mpi lint format bench asan tsan fuzz wheel clean
help:
	@echo "make demo    train on 2 processes (sets up $(VENV) first)"
	@echo "make test    all tests: the C++ core's and the Python ones"
	@echo "make test-mpi   the MPI engine, over Open MPI and MPICH"
	@echo "make lint    ruff, mypy --strict, clang-format; 'make format' mends"
	@echo "make bench   side by side with torch gloo and Open MPI; writes docs/benchmarks.md"
	@echo "make asan | tsan | fuzz    the core under sanitizers; mutated frames (FRAMES=$(FRAMES))"
	@echo "make wheel   dist/*.whl"

$(VENV)/.tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q "scikit-build-core>=0.10" cmake ninja
	touch $@

# The package, editable: libhorovod.so is built beside the sources.
$(VENV)/.installed: $(VENV)/.tools $(CORE)
	$(BIN)/pip install -q --no-build-isolation -e ".[examples]"
	touch $@

# The frameworks, test runner and linters.
$(VENV)/.test-tools: $(VENV)/.tools tests/requirements.txt
	$(BIN)/pip install -q -r tests/requirements.txt
	touch $@

$(VENV)/.lint-tools: $(VENV)/.tools pyproject.toml
	$(BIN)/pip install -q ruff==0.17.4 mypy==2.4.1 clang-format==23.1.3 types-PyYAML types-psutil
	touch $@

demo: $(VENV)/.installed
	$(BIN)/horovodrun -np 2 $(BIN)/python examples/numpy/digits.py

test: test-core test-python

test-core: $(VENV)/.tools
	$(BIN)/cmake -B build/core -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_TESTS=ON > /dev/null
	$(BIN)/ninja -C build/core --quiet
	$(BIN)/ctest --test-dir build/core --output-on-failure --timeout 600

test-python: $(VENV)/.installed $(VENV)/.test-tools
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The MPI engine alone, also with more ranks than MPICH is quick with.
test-mpi: $(VENV)/.installed $(VENV)/.test-tools
	HVD_TEST_MPI_ALL=1 $(BIN)/python -m pytest tests/mpi $(PYTEST_ARGS)

lint: $(VENV)/.installed $(VENV)/.test-tools $(VENV)/.lint-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(shell find csrc -name '*.cc' -o -name '*.h')

format: $(VENV)/.lint-tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find csrc -name '*.cc' -o -name '*.h')

bench: $(VENV)/.installed
	benchmarks/setup.sh
	.venv-bench/bin/python benchmarks/run.py

# $(1): directory, $(2): the sanitizers
define sanitized
	$(BIN)/cmake -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_TESTS=ON -DHVD_SANITIZE=$(2) > /dev/null
	$(BIN)/ninja -C build/$(1) --quiet
endef

asan: $(VENV)/.tools
	$(call sanitized,asan,address$(COMMA)undefined)
	ASAN_OPTIONS=detect_leaks=1 $(BIN)/ctest --test-dir build/asan -E fuzz --output-on-failure --timeout 1200

tsan: $(VENV)/.tools
	$(call sanitized,tsan,thread)
	TSAN_OPTIONS=halt_on_error=1 $(BIN)/ctest --test-dir build/tsan -E '$(TSAN_SKIP)' --output-on-failure --timeout 1200

fuzz: $(VENV)/.tools
	$(call sanitized,asan,address$(COMMA)undefined)
	build/asan/fuzz_wire $(FRAMES)

COMMA := ,

wheel: $(VENV)/.tools
	$(BIN)/pip wheel -q --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

clean:
	rm -rf build dist horovod/libhorovod.so $(VENV)/.installed
