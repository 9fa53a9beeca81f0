# Processes that publish by OpenTelemetry's standards, for internal/lab/demo. Included from
# testdata/Makefile; otel/README.md says what the forms are.
#
#   make O=DIR otel-glibc otel-lib-glibc-gd ...   builds DIR/otel-glibc, DIR/otel-lib-glibc-gd.so
#   make O=DIR MACHINE=aarch64 COMPILER=aarch64-linux-gnu-gcc otel-glibc ...   for another machine

OTEL_SOURCES := $(addprefix otel/,commands.c process.c record.c thread.c writer.c) \
	agent/events.c agent/ids.c
OTEL_HEADERS := $(wildcard otel/*.h) agent/events.h agent/ids.h agent/self.h
VARIABLE := otel/threadctx.c otel/threadctx.h

OTEL_DESC := $(TLSDESC_$(MACHINE))
OTEL_GD := $(DTPMOD_$(MACHINE))
OTEL_FLAGS_tlsdesc := $(OTEL_DESC)
OTEL_FLAGS_tlsdesc-local := $(OTEL_DESC) -DBIND_LOCALLY $(call model,global-dynamic)
OTEL_FLAGS_tlsdesc-ld := $(OTEL_DESC) -DBIND_LOCALLY $(call model,local-dynamic)
OTEL_FLAGS_tlsdesc-hidden := $(OTEL_DESC) -DHIDE $(call model,global-dynamic)
OTEL_FLAGS_gd := $(OTEL_GD)
OTEL_FLAGS_gd-local := $(OTEL_GD) -DBIND_LOCALLY $(call model,global-dynamic)
OTEL_FLAGS_gd-hidden := $(OTEL_GD) -DHIDE $(call model,global-dynamic)
OTEL_FLAGS_ld := $(OTEL_GD) -DBIND_LOCALLY $(call model,local-dynamic)
OTEL_FLAGS_ie := $(call model,initial-exec)
OTEL_FLAGS_ie-local := -DBIND_LOCALLY $(call model,initial-exec)
OTEL_FLAGS_ie-hidden := -DHIDE $(call model,initial-exec)
OTEL_FORMS := tlsdesc tlsdesc-local tlsdesc-ld tlsdesc-hidden gd gd-local gd-hidden ld ie ie-local ie-hidden

OTEL_EXPORT := -Wl,--export-dynamic-symbol=otel_thread_ctx_v1
OTEL_FLAGS_pie := -fPIE -pie $(OTEL_EXPORT)
OTEL_FLAGS_aligned := $(OTEL_FLAGS_pie) -DALIGN=128
OTEL_FLAGS_nopie := -fno-pie -no-pie $(OTEL_EXPORT)
OTEL_FLAGS_hidden := -fPIE -pie
OTEL_FLAGS_static := -fno-pie -static
OTEL_FLAGS_staticpie := -fPIE -static-pie
OTEL_HAVING_IT := pie aligned nopie hidden static staticpie

OTEL_LIBCS := glibc musl
OTEL_LIBRARIES := $(foreach libc,$(OTEL_LIBCS),$(addprefix otel-lib-$(libc)-,$(OTEL_FORMS)))
OTEL_LINKED := $(OTEL_LIBCS:%=otel-%-linked)
OTEL_ALONE := $(foreach libc,$(OTEL_LIBCS),$(addprefix otel-$(libc)-,$(OTEL_HAVING_IT)))
OTEL_LOADING := $(OTEL_LIBCS:%=otel-%)
OTEL_PROGRAMS := $(OTEL_LOADING) $(OTEL_LINKED) $(OTEL_ALONE)

.PHONY: $(OTEL_PROGRAMS) $(OTEL_LIBRARIES)
$(OTEL_PROGRAMS): %: $(O)/%
$(OTEL_LIBRARIES): %: $(O)/%.so

# The writers as a library for other programs: those of agent and of python.
OTEL_PUBLISHERS := $(OTEL_LIBCS:%=otel-publisher-%)
PUBLISHER := $(addprefix otel/,publisher.c process.c record.c threadctx.c)

.PHONY: $(OTEL_PUBLISHERS)
$(OTEL_PUBLISHERS): %: $(O)/%.so
$(OTEL_PUBLISHERS:%=$(O)/%.so): $(PUBLISHER) $(OTEL_HEADERS) otel/otel.mk Makefile | $(O)
	$(COMPILER) $(LIBRARY_FLAGS) -fvisibility=hidden $(OTEL_DESC) -o $@ $(PUBLISHER)

# What follows the C library in the name of the target.
otel_form = $(patsubst otel-glibc-%,%,$(patsubst otel-musl-%,%,$(subst otel-lib-,otel-,$(basename $(@F)))))
otel_link = $(COMPILER) $(PROGRAM_FLAGS) -o $@ $(filter-out $(1),$(filter %.o,$^))

# What the programs of a C library have in common is compiled once: those that are linked with the variable
# differ in their commands.
OTEL_PARTS := $(basename $(notdir $(OTEL_SOURCES))) commands-linked
OTEL_OBJECTS := $(foreach libc,$(OTEL_LIBCS),$(OTEL_PARTS:%=$(O)/otel-$(libc)-%.o))
$(OTEL_OBJECTS): $(OTEL_SOURCES) $(OTEL_HEADERS) otel/otel.mk Makefile | $(O)
	$(COMPILER) $(PROGRAM_FLAGS) -fPIE -Iagent $(if $(findstring -linked,$(@F)),-DLINKED) -c -o $@ \
		$(filter %/$(otel_form:-linked=).c,$(OTEL_SOURCES))

$(OTEL_LIBRARIES:%=$(O)/%.so): $(VARIABLE) otel/otel.mk Makefile | $(O)
	$(COMPILER) $(LIBRARY_FLAGS) -Wl,-soname,libthreadctx.so $(OTEL_FLAGS_$(otel_form)) -o $@ otel/threadctx.c

$(OTEL_PROGRAMS:%=$(O)/%): $(VARIABLE)
$(filter $(O)/otel-glibc%,$(OTEL_PROGRAMS:%=$(O)/%)): $(filter $(O)/otel-glibc-%,$(OTEL_OBJECTS))
$(filter $(O)/otel-musl%,$(OTEL_PROGRAMS:%=$(O)/%)): $(filter $(O)/otel-musl-%,$(OTEL_OBJECTS))
$(OTEL_LOADING:%=$(O)/%):
	$(call otel_link,%-linked.o) -ldl
$(OTEL_LINKED:%=$(O)/%): $(O)/otel-%-linked: $(O)/otel-lib-%-gd.so
	$(call otel_link,%-commands.o) $< -Wl,-rpath,'$$ORIGIN'
$(OTEL_ALONE:%=$(O)/%):
	$(call otel_link,%-commands.o) $(OTEL_FLAGS_$(otel_form)) otel/threadctx.c

$(O)/otel-glibc $(O)/otel-glibc-% $(O)/otel-lib-glibc-% $(O)/otel-publisher-glibc.so: COMPILER := cc
$(O)/otel-musl $(O)/otel-musl-% $(O)/otel-lib-musl-% $(O)/otel-publisher-musl.so: COMPILER := musl-gcc
MUSL_LIB := /usr/lib/$(MACHINE)-linux-musl
# The wrapper knows no static PIE: its start files are those of programs that a loader relocates.
$(O)/otel-musl-staticpie: OTEL_FLAGS_staticpie = -fPIE -static -nostartfiles -Wl,-pie,--no-dynamic-linker \
	$(addprefix $(MUSL_LIB)/,rcrt1.o crti.o crtn.o)
