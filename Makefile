# A thin front for CMake's presets: what is built, and how, is said in CMakeLists.txt and CMakePresets.json.
PREFIX  ?= /usr/local
PRESETS ?= release tsan asan aarch64
REV     ?= HEAD
MINUTES ?= 60
FILES   ?= $(wildcard build/bench.json build/bench-full.json)

.DEFAULT_GOAL := help
.PHONY: help lib run test bench bench-full bench-check bench-report peers soak install format tidy clean

help:
	@echo 'make lib               build build/release/libhakmem.so and libhakmem.a'
	@echo 'make run [CMD="..."]   run a program without and with hakmem, and compare'
	@echo 'make test              build and run the tests [PRESETS="$(PRESETS)"] [FILTER=regex]'
	@echo 'make bench             a short side-by-side benchmark of allocators'
	@echo 'make bench-full        all rows, all allocators: hours'
	@echo 'make bench-check       compare this build with that of another revision [REV=$(REV)]'
	@echo 'make bench-report      build/bench.html from what these found [FILES="..."]'
	@echo 'make peers             build more allocators to compare with, into build/peers'
	@echo "make soak              a server's days and nights: does its memory stay flat? [MINUTES=$(MINUTES)]"
	@echo 'make install           the library, header and manual pages [PREFIX=$(PREFIX)] [DESTDIR=]'
	@echo 'make format, make tidy, make clean'

lib:
	@tools/setup lib
	@tools/build release lib

run: export CMD := $(CMD)
run: lib
	@tools/setup run
	@tools/run -c "$$CMD"

test:
	@tools/setup test
	@tools/test $(PRESETS)

bench: lib
	@tools/setup bench
	@bench/bench --json build/bench.json

bench-full: lib
	@tools/setup bench-full
	@tools/peers || echo 'hakmem: what was built of the peers takes part' >&2
	@bench/bench --full --calls --instructions --json build/bench-full.json

bench-check: export REV := $(REV)
bench-check: lib
	@tools/setup bench-check
	@bench/bench check "$$REV"

bench-report: export FILES := $(FILES)
bench-report:
	@tools/setup bench-report
	@[ -n "$$FILES" ] || { echo 'hakmem: no results yet: make bench, or FILES="..."' >&2; exit 2; }
	@bench/bench report -o build/bench.html $$FILES

peers:
	@tools/peers

soak: export MINUTES := $(MINUTES)
soak: lib
	@tools/setup bench
	@bench/soak --minutes "$$MINUTES"

install: export PREFIX := $(PREFIX)
install: export DESTDIR := $(DESTDIR)
install: lib
	@case "$$PREFIX" in /*) ;; *) echo "hakmem: PREFIX must begin with /, unlike '$$PREFIX'" >&2; exit 2 ;; esac
	@cmake --install build/release --prefix "$$PREFIX"
	@case "$$DESTDIR$$PREFIX" in \
	/usr|/usr/local) if [ "$$(id -u)" = 0 ]; then /sbin/ldconfig; fi ;; \
	"$$PREFIX") echo 'The loader finds libhakmem.so there by LD_LIBRARY_PATH or by -Wl,-rpath.' ;; esac

format:
	@tools/setup format
	@find include src tests bench tools \( -name '*.[ch]' -o -name '*.cc' \) -exec clang-format -i {} +

tidy:
	@tools/setup tidy
	@tools/build release lib
	@clang-tidy --quiet -p build/release src/*/*.c

clean:
	@rm -rf build
