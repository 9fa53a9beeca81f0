# The correlator: `make help` lists the targets.

GO      ?= go
VERSION ?= $(shell .ci/version 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# bin/correlator is for this host; a binary for another GOARCH has that appended to its name, so that
# it never replaces the one that the host runs.
HOSTARCH := $(shell $(GO) env GOHOSTARCH)
GOARCH   ?= $(HOSTARCH)
BINARY   := bin/correlator$(if $(filter-out $(HOSTARCH),$(GOARCH)),-$(GOARCH))

# What is compiled does not depend on where the tree is: one cache serves all clones of it, and the releases.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(GOFLAGS))

# Under CI, skips for lack of root, eBPF or a tool are failures (internal/lab/testenv).
TESTENV := $(if $(CI),STRICT_TESTS=1)
NEED    := .ci/need

# Run by its version and no tool of go.mod, which would get the 200 modules that it needs.
# Building it takes 4 minutes of CPU time, once.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Their package depends on the C library for aarch64.
ARM_HEADERS := /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross

# For rebuilding the committed agent libraries.
FIXTURE_TOOLS := cc:gcc musl-gcc:musl-tools aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu clang:clang ld.lld:lld \
	llvm-objcopy:llvm readelf:binutils $(ARM_HEADERS)
# For the eBPF programs of tests. The committed ones are compiled by .ci/bpf-toolchain.
EBPF_TOOLS := clang:clang /usr/include/bpf/bpf_helpers.h:libbpf-dev

TEST_TOOLS := $(EBPF_TOOLS) cc:gcc musl-gcc:musl-tools ld.lld:lld javac:openjdk-17-jdk-headless readelf:binutils \
	unshare:util-linux setpriv:util-linux systemd-analyze:systemd git:git node:nodejs npm:npm \
	python3:python3 chromium:chromium php:php-cli php-fpm8.2:php-fpm \
	aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static $(ARM_HEADERS)

# For the tests of a release (deploy, with the build tag release).
DIST_TOOLS := cc:gcc buildah:buildah rpm:rpm qemu-aarch64-static:qemu-user-static unshare:util-linux systemd-analyze:systemd

# What internal/lab/kernels executes on the host.
KERNEL_TOOLS := $(EBPF_TOOLS) javac:default-jdk-headless cpio:cpio git:git xz:xz-utils \
	x86_64-linux-gnu-gcc:$(if $(filter amd64,$(HOSTARCH)),gcc,gcc-x86-64-linux-gnu) \
	aarch64-linux-gnu-gcc:$(if $(filter arm64,$(HOSTARCH)),gcc,gcc-aarch64-linux-gnu) \
	/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring

.PHONY: build dist demo screenshots test soak bench truth truth-arm64 pair interop fleet fuzz kernels kernels-quick generate check format-check vet lint \
	generated-check fixtures-check dist-check deploy-check clean help

build: ## build bin/correlator (static); GOARCH=arm64 builds bin/correlator-arm64
	@GO=$(GO) GOARCH=$(GOARCH) .ci/compile $(BINARY) $(VERSION) $(COMMIT)
	@echo built $(BINARY)

dist: ## build a reproducible release in dist/: binaries for both architectures, packages, archives, chart, checksums
	@.ci/dist dist

demo: build ## show the main job on five real processes, one a JVM, one in Python (root, under 25 s); OTLP=1: also the export
	@$(NEED) cc:gcc unshare:util-linux python3:python3
	@OTLP='$(OTLP)' testdata/demo.sh

# Of the processes of the demo. That the pictures are of today's pages is a test: internal/lab/screenshots.
screenshots: build ## take the pictures in docs/images again (root, two minutes)
	@$(NEED) cc:gcc unshare:util-linux python3:python3 chromium:chromium
	@SCREENSHOTS=docs/images testdata/demo.sh >/dev/null

# Without cached results (the go command's cache knows nothing of the C sources, the kernel, the
# tools). What takes longer than the timeout hangs: beside eight busy loops on two CPUs, packages take 20 minutes.
# Packages may run concurrently (see testenv.Main), one more than there are CPUs, as tests also wait.
# The race detector would wait for a second at each exit of a test binary.
# Vetting is a step of check, which does it with all of vet's analyzers.
test: ## run every test as root, with the race detector, but those of releases (dist-check)
	@$(NEED) $(TEST_TOOLS)
	$(TESTENV) GORACE=atexit_sleep_ms=0 $(GO) test -race -vet=off -count 1 -p $$(($$(nproc) + 1)) -timeout 80m ./...
	@# What workers may not do differs in builds without libc, as releases are.
	$(TESTENV) CGO_ENABLED=0 $(GO) test -vet=off -count 1 -run '^TestForbiddenCalls$$' ./internal/worker

# What can only be said of a machine that does nothing else: shares of whole stacks, samples against CPU
# time, memory after churn, delays. Prints figures beside their bounds.
soak: ## run the checks that depend on speed, on a quiet machine; prints figures beside bounds
	@$(NEED) $(TEST_TOOLS)
	@echo "a quiet machine? load average: $$(cut -d' ' -f1-3 /proc/loadavg) on $$(nproc) CPUs"
	$(GO) test -tags soak -run '^TestSoak' -v -p 1 -count 1 -timeout 60m ./...

bench: ## run the benchmarks; docs/benchmarks.md quotes them
	@$(NEED) cc:gcc
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Downloads toolchains of Go. JDKS are directories in which JDKs are, with colons between them.
JDKS = /usr/lib/jvm
truth: ## compare what is shown of programs with what they do; docs/truth.md quotes it (root, 30 min); ONLY=EXPRESSION: some
	@$(NEED) cc:gcc clang:clang musl-gcc:musl-tools javac:openjdk-17-jdk-headless
	$(GO) run ./internal/lab/truth -run '$(ONLY)' -jdks '$(JDKS)'

# The guest has gcc, but no Go: what "go build" would write is there before.
TRUTH = testdata/out/truth-arm64
truth-arm64: ## the same of C and Go on an emulated arm64 CPU (30 min)
	@$(NEED) $(KERNEL_TOOLS)
	rm -rf $(TRUTH) && mkdir -p $(TRUTH)
	GOARCH=arm64 .ci/compile $(TRUTH)/correlator 0 0
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o $(TRUTH)/ ./internal/lab/truth
	for v in 1.22.12 1.26.0; do GOTOOLCHAIN=go$$v GO111MODULE=off GOFLAGS= GOARCH=arm64 CGO_ENABLED=0 \
		$(GO) build -o $(TRUTH)/go$$v internal/lab/truth/testdata/golang/main.go || exit; done
	printf '#!/bin/sh\ncp /files/$${GOTOOLCHAIN:-correlator} $$3\n' >$(TRUTH)/go && chmod +x $(TRUTH)/go
	$(GO) run ./internal/lab/kernels -files $(TRUTH) \
		-command 'PATH=/files:$$PATH truth -run "^(gcc|Go 1.2[26].*[0-9]$$)" -d 20s' arm64-6.12

# PAIR are flags: see internal/lab/pair.
pair: ## measure the correlator beside the OpenTelemetry eBPF profiler on twelve loads (root, quiet machine, an hour); PAIR='-loads ab': some
	@$(NEED) cc:gcc javac:openjdk-17-jdk-headless python3:python3 git:git
	@$(GO) run ./internal/lab/pair $(PAIR)

# The receiver is in a separate module (testdata/interop), which downloads nearly 70 others.
interop: ## send everything to the OpenTelemetry Collector's own receiver and compare what arrives
	cd testdata/interop && CGO_ENABLED=0 $(GO) build -o ../out/interop .
	INTEROP=$(CURDIR)/testdata/out/interop $(GO) test -tags interop -count 1 -v -run '^TestInterop$$' ./internal/out/export

fleet: ## send Pyroscope 1.21, built from its module (minutes), what hosts send, and explain a trace of several from it
	.ci/pyroscope testdata/out/pyroscope
	GOBIN=$(CURDIR)/testdata/out $(GO) install github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0
	PYROSCOPE=$(CURDIR)/testdata/out/pyroscope S3=$(CURDIR)/testdata/out/gofakes3 \
		$(GO) test -tags interop -count 1 -v -run '^TestReal' ./internal/out/pyroscope

# Without a limit, minimizing a large input that covers something new takes up to a minute, which is
# all of FUZZTIME: 32 executions of FuzzReadSymbolTables in 30 s instead of 709,000.
FUZZTIME ?= 30s
fuzz: ## fuzz every decoder of foreign bytes for FUZZTIME each
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$package || exit 1; \
		done; \
	done

# Downloads 700 MB of Debian's packages, once, into ~/.cache/correlator.
kernels: ## boot Debian's kernels under QEMU and run the tests in them (hours); KERNELS="amd64-5.10 ...": only these
	@$(NEED) $(KERNEL_TOOLS)
	$(GO) run ./internal/lab/kernels $(if $(KERNELS),$(KERNELS),-update)

kernels-quick: ## the same with the oldest kernel of each architecture and the shortest tests
	@$(NEED) $(KERNEL_TOOLS)
	$(GO) run ./internal/lab/kernels -quick amd64-5.10 arm64-6.1

generate: ## rebuild the committed eBPF objects, their Go bindings, the Go code for .dots files and the fixtures
	@$(NEED) $(FIXTURE_TOOLS)
	$(GO) generate ./bpf ./dots/... ./internal/out/flamegraph ./internal/out/live/... ./internal/lab/limits/... \
		./internal/operate/metrics/...
	$(MAKE) -C testdata fixtures

# Everything is compiled for the tests, with the race detector, and for releases, without libc. Vetting and linting
# share the former, all programs and other checks the latter, so that nothing is compiled a third time.
check: export CGO_ENABLED := 0
check: format-check vet lint generated-check fixtures-check dist-check deploy-check ## run all checks but the tests: formatting, linters, generated files, releases, deploy/

format-check:
	@$(NEED) clang-format:clang-format
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; }
	@files=$$(git ls-files '*.c' '*.h') && clang-format --dry-run --Werror $$files

vet:
	CGO_ENABLED=1 $(GO) vet -race ./...
	CGO_ENABLED=1 $(GO) vet -race -tags guest,soak,interop,release ./...
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet -tags guest ./...

lint:
	CGO_ENABLED=0 $(GO) run -exec 'env CGO_ENABLED=1 "GOFLAGS=$(GOFLAGS) -race"' $(GOLANGCI_LINT) run

generated-check: ## prove that the committed eBPF objects and Go code match their sources
	@$(NEED) git:git
	@.ci/generated

fixtures-check: ## prove that the committed agent libraries match their sources
	@$(NEED) $(FIXTURE_TOOLS)
	$(MAKE) -C testdata check-fixtures

dist-check: ## prove that releases are reproducible, and test them for all architectures
	@$(NEED) $(DIST_TOOLS)
	@$(TESTENV) .ci/dist-check

deploy-check: ## prove that Kubernetes and Prometheus accept the files in deploy/
	@.ci/deploy-check
	@.ci/alerts-check

clean: ## remove build results
	rm -rf bin dist
	$(MAKE) -C testdata clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done
