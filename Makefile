# SPDX-License-Identifier: MIT
# The face of the meson build. Everything is built into build/ and can be used in place.

PREFIX ?= /usr/local
BUILD := build
JOBS ?= 2
export PREFIX

all: meson-found
	@sh scripts/configure.sh $(BUILD)
	@ninja -C $(BUILD)

meson-found:
	@for t in meson ninja pkg-config; do \
		command -v $$t >/dev/null 2>&1 || { echo "$$t is missing: run make deps" >&2; exit 1; }; \
	done
	@[ -f third_party/liburcu/src/urcu-bp.c ] || \
		{ echo "the source of liburcu is missing: run make deps" >&2; exit 1; }

deps:
	@sh scripts/install-deps.sh check

build-deps:
	@sh scripts/install-deps.sh build

# Targets that install what they need do so before anything else, also with make -j.
demo: build-deps
	@$(MAKE) --no-print-directory all
	@python3 scripts/demo.py

# The quick form of everything, and its report; make bench QUICK= measures at length.
bench: QUICK ?= --quick
bench: build-deps
	@$(MAKE) --no-print-directory all
	@$(BUILD)/pollux bench all --native --report=$(BUILD)/bench-report $(QUICK) $(BENCH)

program-deps: deps
	@sh scripts/install-deps.sh programs

check: deps program-deps
	@python3 scripts/run-tests.py --jobs $(JOBS) $(if $(ONLY),--only '$(ONLY)')

# Before each commit.
check-quick: deps
	@python3 scripts/run-tests.py --quick --jobs $(JOBS)

check-long: deps program-deps
	@python3 scripts/run-tests.py --long --jobs $(JOBS) $(if $(ONLY),--only '$(ONLY)')
	@$(if $(ONLY),:,python3 scripts/jitter.py -- python3 scripts/run-tests.py --listed tests/jitter.txt)
	@$(if $(ONLY),:,python3 scripts/run-tests.py --listed tests/busy.txt --busy 300 --jobs $(JOBS))

# Not part of make check: an emulated machine takes its time.
check-aarch64: build-deps
	@sh scripts/check-aarch64.sh $(if $(ONLY),--only '$(ONLY)')

# Random sequences of calls on the kernel and on Pollux, side by side.
# Eventfds are cached from their creation; adopted, and returned, at any call; or adopted when hot.
fuzz fuzz-aio: ADOPT ?= always
fuzz fuzz-aio: export POLLUX_ADOPT ?= $(if $(filter random,$(ADOPT)),random:$(SEED),$(ADOPT))
fuzz fuzz-aio: SECONDS ?= 60
fuzz fuzz-aio: SEED ?= $(shell date +%s)000000
fuzz: deps
	@$(MAKE) --no-print-directory all
	@python3 tests/differential/lockstep.py --binary $(BUILD)/tests/differential/differential \
		--pollux $(BUILD)/pollux --seconds $(SECONDS) --seed $(SEED) --differences 20 \
		$(addprefix --profile ,$(PROFILE))

fuzz-aio: PROFILE ?= files mixed garbage
fuzz-aio: deps
	@$(MAKE) --no-print-directory all
	@python3 tests/differential/lockstep.py --pollux $(BUILD)/pollux \
		--binary $(BUILD)/tests/differential/differential-aio \
		--seconds $(SECONDS) --seed $(SEED) --differences 20 $(addprefix --profile ,$(PROFILE))

# After a change of the public interface (docs/abi.md).
abi: all
	@sh scripts/abi.sh --write $(BUILD)/libpollux.so

# BENCHMARKS=1 installs the programs of `pollux bench`, too.
install: meson-found
	@sh scripts/configure.sh $(BUILD) $(if $(BENCHMARKS),-Dbenchmarks=true)
	@ninja -C $(BUILD) installed
	@DESTDIR='$(DESTDIR)' meson install -C $(BUILD) --no-rebuild --quiet
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

format:
	@sh scripts/format-check.sh --fix

clean:
	rm -rf build build-clang build-asan build-tsan build-aarch64 build-machine

help:
	@echo 'make              build into build/'
	@echo 'make deps         install what is missing (Debian, Ubuntu)'
	@echo 'make demo         a stock epoll program on the kernel and on Pollux'
	@echo 'make check        the whole test suite; ONLY=GLOB picks tests'
	@echo 'make check-quick  the part of it that takes less than a minute, for each commit'
	@echo 'make check-long   the long forms of the tests, and some on an unfair machine'
	@echo 'make check-aarch64  built for aarch64, on an emulated machine; ONLY=GLOB picks tests'
	@echo 'make fuzz         random calls on both sides; SECONDS, SEED, PROFILE, ADOPT=always|random|hot'
	@echo 'make fuzz-aio     the same for Linux AIO'
	@echo 'make bench        measure, report in build/bench-report; QUICK= at length, BENCH="..." adds'
	@echo 'make abi          describe the binary interface anew, after a change of it'
	@echo 'make install      DESTDIR and PREFIX are honoured; BENCHMARKS=1 adds those of pollux bench'
	@echo 'make format       lay out the C files with clang-format'
	@echo 'make clean        remove the build folders'

.PHONY: all meson-found deps build-deps program-deps demo bench check check-quick check-long check-aarch64
.PHONY: fuzz fuzz-aio abi install format clean help
