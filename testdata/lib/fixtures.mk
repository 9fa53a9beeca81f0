# The prebuilt agent libraries: lib/prebuilt/ARCH-LIBC-FORM[-VARIANT].so, see lib/README.md, and files
# with OpenTelemetry's thread-local variable: otel/prebuilt/ARCH-FORM, see otel/README.md.
# Included from testdata/Makefile. Every file below has a row in a README.

PREBUILT := lib/prebuilt
OTEL_PREBUILT := otel/prebuilt
FIXTURE_SOURCES := lib/agentlib.c lib/agentlib.h lib/fixtures.mk
OTEL_FIXTURE_SOURCES := otel/threadctx.c otel/threadctx.h

# No debug information, no compiler's name, no start files: the bytes depend on the
# source and the toolchain only, never on a path. 4 KiB pages, or else the files for
# aarch64 would have 64 KiB each.
FIXTURE_FLAGS := -std=gnu11 -Wall -Wextra -Werror -Os -fPIC -shared -fno-ident \
	-fno-asynchronous-unwind-tables -nostartfiles -nodefaultlibs -Wl,-s \
	-Wl,--build-id=sha1 -Wl,-z,max-page-size=4096
LIBC := -Wl,--no-as-needed -lc

X86 := x86_64-linux-gnu-gcc
X86_TLSDESC := $(X86) -mtls-dialect=gnu2
X86_DTPMOD := $(X86) -mtls-dialect=gnu
MUSL_TLSDESC := musl-gcc -mtls-dialect=gnu2
MUSL_DTPMOD := musl-gcc -mtls-dialect=gnu
ARM := aarch64-linux-gnu-gcc
ARM_TLSDESC := $(ARM) -mtls-dialect=desc
ARM_DTPMOD := $(ARM) -mtls-dialect=trad
# Only clang finds lld when it builds for another machine; its dialect here is always TLSDESC.
ARM_CLANG := clang --target=aarch64-linux-gnu

# fixture(name, compiler, flags, libraries)
define fixture_rule
FIXTURES += $(PREBUILT)/$(1).so
$(PREBUILT)/$(1).so: $(FIXTURE_SOURCES)
	$(2) $(FIXTURE_FLAGS) $(3) -o $$@ lib/agentlib.c $(4)
endef
fixture = $(eval $(call fixture_rule,$(strip $(1)),$(2),$(3),$(4)))

FIXTURES :=
$(call fixture, x86_64-glibc-tlsdesc,  $(X86_TLSDESC),  , $(LIBC))
$(call fixture, x86_64-glibc-dtpmod,   $(X86_DTPMOD),   , $(LIBC))
$(call fixture, x86_64-musl-tlsdesc,   $(MUSL_TLSDESC), , $(LIBC))
$(call fixture, x86_64-musl-dtpmod,    $(MUSL_DTPMOD),  , $(LIBC))
$(call fixture, aarch64-glibc-tlsdesc, $(ARM_TLSDESC),  , $(LIBC))
$(call fixture, aarch64-glibc-dtpmod,  $(ARM_DTPMOD),   , $(LIBC))
$(call fixture, aarch64-musl-tlsdesc,  $(ARM_TLSDESC),  , )
$(call fixture, aarch64-musl-dtpmod,   $(ARM_DTPMOD),   , )

$(call fixture, x86_64-glibc-tlsdesc-local,      $(X86_TLSDESC), -DBIND_LOCALLY, $(LIBC))
$(call fixture, x86_64-glibc-dtpmod-local,       $(X86_DTPMOD),  -DBIND_LOCALLY, $(LIBC))
$(call fixture, aarch64-glibc-tlsdesc-local,     $(ARM_TLSDESC), -DBIND_LOCALLY, $(LIBC))
$(call fixture, aarch64-glibc-dtpmod-local,      $(ARM_DTPMOD),  -DBIND_LOCALLY, $(LIBC))
$(call fixture, x86_64-glibc-tlsdesc-lld,        $(X86_TLSDESC), -fuse-ld=lld, $(LIBC))
$(call fixture, x86_64-glibc-tlsdesc-lld-local,  $(X86_TLSDESC), -fuse-ld=lld -Wl$(,)-Bsymbolic, $(LIBC))
$(call fixture, x86_64-glibc-dtpmod-lld-local,   $(X86_DTPMOD),  -fuse-ld=lld -Wl$(,)-Bsymbolic, $(LIBC))
$(call fixture, aarch64-glibc-tlsdesc-lld,       $(ARM_CLANG),   -fuse-ld=lld, $(LIBC))
$(call fixture, aarch64-glibc-tlsdesc-lld-local, $(ARM_CLANG),   -fuse-ld=lld -Wl$(,)-Bsymbolic, $(LIBC))
$(call fixture, aarch64-glibc-tlsdesc-64k,       $(ARM_TLSDESC), -Wl$(,)-z$(,)max-page-size=65536, $(LIBC))

$(call fixture, x86_64-glibc-tlsdesc-sysvhash, $(X86_TLSDESC), -Wl$(,)--hash-style=sysv -Wl$(,)--build-id=none, $(LIBC))
$(call fixture, x86_64-glibc-initialexec,      $(X86), -ftls-model=initial-exec, $(LIBC))
$(call fixture, x86_64-glibc-older,            $(X86_TLSDESC), -DOMIT_STORAGE -DOMIT_TLS, $(LIBC))
$(call fixture, aarch64-glibc-older,           $(ARM_TLSDESC), -DOMIT_STORAGE -DOMIT_TLS, $(LIBC))
$(call fixture, x86_64-glibc-storageonly,      $(X86_TLSDESC), -DOMIT_TLS, $(LIBC))
$(call fixture, x86_64-glibc-tlsonly,          $(X86_TLSDESC), -DOMIT_STORAGE, $(LIBC))

STRIPPED := $(foreach whole, x86_64-glibc-tlsdesc x86_64-glibc-dtpmod aarch64-glibc-tlsdesc \
	aarch64-glibc-dtpmod, $(PREBUILT)/$(whole)-nosections.so)
$(STRIPPED): %-nosections.so: %.so
	llvm-objcopy --strip-sections $< $@
FIXTURES += $(STRIPPED)

# otel_fixture(name, compiler, flags): what is linked, and how, is among the flags.
define otel_fixture_rule
FIXTURES += $(OTEL_PREBUILT)/$(1)
$(OTEL_PREBUILT)/$(1): $(OTEL_FIXTURE_SOURCES) lib/fixtures.mk
	$(2) $(filter-out -fPIC -shared -Wl$(,)-s,$(FIXTURE_FLAGS)) $(3) -o $$@ otel/threadctx.c
endef
otel_fixture = $(eval $(call otel_fixture_rule,$(strip $(1)),$(2),$(3)))

STRIP := -Wl$(,)-s
MODULE := -fPIC -shared
EXECUTABLE := -Wl$(,)-e$(,)threadctx_variable -Wl$(,)--export-dynamic-symbol=otel_thread_ctx_v1
# The TLS model is named where a cheaper one is possible, which the compiler would take.
model = -DMODEL='"$(1)"'
local = -DBIND_LOCALLY $(call model,$(1))

# otel_fixtures(machine, compiler, its flag for TLSDESC, its flag for DTPMOD64)
define otel_fixtures
$(call otel_fixture,$(1)-tlsdesc.so,$(2) $(3),$(MODULE) $(STRIP))
$(call otel_fixture,$(1)-tlsdesc-local.so,$(2) $(3),$(MODULE) $(STRIP) $(call local,global-dynamic))
$(call otel_fixture,$(1)-tlsdesc-ld.so,$(2) $(3),$(MODULE) $(STRIP) $(call local,local-dynamic))
$(call otel_fixture,$(1)-tlsdesc-hidden.so,$(2) $(3),$(MODULE) -DHIDE $(call model,global-dynamic))
$(call otel_fixture,$(1)-tlsdesc-stripped.so,$(2) $(3),$(MODULE) $(STRIP) -DHIDE $(call model,global-dynamic))
$(call otel_fixture,$(1)-gd.so,$(2) $(4),$(MODULE) $(STRIP))
$(call otel_fixture,$(1)-gd-local.so,$(2) $(4),$(MODULE) $(STRIP) $(call local,global-dynamic))
$(call otel_fixture,$(1)-ld.so,$(2) $(4),$(MODULE) $(STRIP) $(call local,local-dynamic))
$(call otel_fixture,$(1)-ie.so,$(2) $(3),$(MODULE) $(STRIP) $(call model,initial-exec))
$(call otel_fixture,$(1)-ie-local.so,$(2) $(3),$(MODULE) $(STRIP) $(call local,initial-exec))
$(call otel_fixture,$(1)-pie,$(2),-fPIE -pie $(STRIP) $(EXECUTABLE))
$(call otel_fixture,$(1)-pie-hidden,$(2),-fPIE -pie -DHIDE $(EXECUTABLE))
$(call otel_fixture,$(1)-pie-aligned,$(2),-fPIE -pie $(STRIP) $(EXECUTABLE) -DALIGN=128)
$(call otel_fixture,$(1)-static,$(2),-fno-pie -static $(EXECUTABLE))
$(call otel_fixture,$(1)-staticpie,$(2),-fPIE -static-pie $(EXECUTABLE))
endef
$(call otel_fixtures,x86_64,$(X86),-mtls-dialect=gnu2,-mtls-dialect=gnu)
$(call otel_fixtures,aarch64,$(ARM),-mtls-dialect=desc,-mtls-dialect=trad)
$(call otel_fixture,x86_64-tlsdesc-lld.so,$(X86_TLSDESC),-fuse-ld=lld $(MODULE) $(STRIP))
$(call otel_fixture,x86_64-gd-lld-local.so,$(X86_DTPMOD),-fuse-ld=lld -Wl$(,)-Bsymbolic $(MODULE) $(STRIP))
$(call otel_fixture,x86_64-pie-lld,$(X86),-fuse-ld=lld -fPIE -pie $(STRIP) $(EXECUTABLE) -DALIGN=128)
$(call otel_fixture,aarch64-tlsdesc-lld-local.so,$(ARM_CLANG),-fuse-ld=lld -Wl$(,)-Bsymbolic $(MODULE) $(STRIP))
$(call otel_fixture,aarch64-pie-lld,$(ARM_CLANG),-fuse-ld=lld -fPIE -pie $(STRIP) $(EXECUTABLE) -DALIGN=128)

FIXTURE_TOOLS := $(X86) $(ARM) clang ld aarch64-linux-gnu-ld ld.lld llvm-objcopy
toolchain = for tool in $(FIXTURE_TOOLS); do \
	printf '%s: ' $$tool; LC_ALL=C $$tool --version | sed -n '/[0-9]/{p;q}'; done

.PHONY: fixtures check-fixtures
fixtures: $(FIXTURES)
	@$(toolchain) > $(PREBUILT)/TOOLCHAIN
	@sha256sum $(FIXTURE_SOURCES) $(OTEL_FIXTURE_SOURCES) $(FIXTURES) > $(PREBUILT)/SHA256SUMS

# The sums tell a source that changed without a rebuild, and a file that is not of this
# source, on every machine. With the same toolchain the rebuild must give the same bytes.
check-fixtures:
	@sha256sum --quiet --check $(PREBUILT)/SHA256SUMS
	@if $(toolchain) 2>/dev/null | cmp -s - $(PREBUILT)/TOOLCHAIN; then \
		dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		mkdir -p "$$dir/$(PREBUILT)" "$$dir/$(OTEL_PREBUILT)" && \
		$(MAKE) -s PREBUILT="$$dir/$(PREBUILT)" OTEL_PREBUILT="$$dir/$(OTEL_PREBUILT)" fixtures && \
		for file in $(FIXTURES); do \
			cmp "$$dir/$$file" "$$file" || exit 1; \
		done && \
		echo "fixtures: $(words $(FIXTURES)) files, and the rebuild gives the same bytes"; \
	else \
		echo "fixtures: sums are right; not rebuilt: not the toolchain of $(PREBUILT)/TOOLCHAIN"; \
		test -z "$$CI" || { echo "fixtures: under CI that proves nothing: run make fixtures and commit"; exit 1; }; \
	fi
