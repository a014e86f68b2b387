# How a test is declared. Used by tests/*/CMakeLists.txt.
#
#   hk_unit_test(name SOURCES a.cc [b.c ...]
#                [NO_GTEST] [ARGS a ...] [ENV K=V ...] [DEFINES D ...] [TIMEOUT s] [SERIAL])
#       A GoogleTest program linked with the core of the tests: all of src/, built with HK_DEBUG=1 (asserts, lock
#       ranks) and HK_NO_LIBC_NAMES=1 (only hak_ and hk_ names, so malloc stays the C library's). Internal headers are
#       found as "heap/slab.h"; they are C: include them between "c_begin.h" and "c_end.h", after the C++ headers
#       (tests/support/cxx makes them readable to C++). NO_GTEST: a program with a main of its own, 0 is
#       success. Runs in every preset (release, debug, tsan, asan, aarch64). HK_TEST_SLOWDOWN is how much longer than a
#       plain run this one may take (1 plain, more under sanitizers and emulation): divide counts of repetitions by it.
#
#   hk_preload_test(name SOURCES a.c|a.cc ...
#                   [ARGS a ...] [ENV K=V ...] [DEFINES D ...] [TIMEOUT s] [SERIAL])
#       A plain program, knowing nothing of hakmem, run with LD_PRELOAD=libhakmem.so and the variables of ENV; 0 is
#       success.
#
#   hk_linked_test(name SOURCES ... [STATIC_PIE | STATIC] ...the rest as hk_preload_test)
#       The same, linked with libhakmem.a; STATIC_PIE and STATIC link the whole program statically.
#
#   hk_script_test(name COMMAND program args ... [ENV K=V ...] [TIMEOUT s] [SERIAL])
#       Any command, without preload. Its environment has HAKMEM_LIB and HAKMEM_ARCHIVE (libhakmem.so and .a),
#       HAKMEM_SOURCE_DIR, HAKMEM_BUILD_DIR, HAKMEM_BUILD (the preset's name).
#
# The last three exist in the release and debug presets only. In all of them: a test gets the name it is given, the
# default TIMEOUT is 60 s (times HK_TEST_SLOWDOWN), exit code 77 is a skip (which fails `make test` in CI),
# SERIAL keeps other tests from running beside it. No argument can contain a semicolon, which is CMake's separator.
include_guard(GLOBAL)

set(native ON)
if(CMAKE_CROSSCOMPILING OR HAKMEM_SANITIZE)
    set(native OFF)
endif()

set(HK_TEST_SLOWDOWN 1)
set(HK_TEST_ENV "")
set(HK_TEST_LAUNCHER "")
if(CMAKE_CROSSCOMPILING)
    set(HK_TEST_SLOWDOWN 8)
    set(HK_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
elseif(HAKMEM_SANITIZE)
    set(HK_TEST_SLOWDOWN 8)
    # Reachability through blocks of hakmem is unknown to the leak checker, so all it could say is wrong.
    set(HK_TEST_ENV "ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1"
        "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
        "TSAN_OPTIONS=halt_on_error=1:abort_on_error=1:second_deadlock_stack=1")
    # GCC 12's ThreadSanitizer dies of address layouts with more than 28 random bits; some containers forbid setarch.
    execute_process(COMMAND setarch -R true RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
        set(HK_TEST_LAUNCHER setarch -R)
    endif()
endif()

if(HAKMEM_SANITIZE)
    add_compile_options(-fsanitize=${HAKMEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${HAKMEM_SANITIZE})
endif()

# GoogleTest from Debian's sources, in every preset alike: there is no built one for sanitizers and AArch64.
set(HAKMEM_GTEST_DIR /usr/src/googletest/googletest CACHE PATH "Sources of GoogleTest")
set(BUILD_GMOCK OFF)
add_library(hk_gtest STATIC EXCLUDE_FROM_ALL
    "${HAKMEM_GTEST_DIR}/src/gtest-all.cc" "${HAKMEM_GTEST_DIR}/src/gtest_main.cc")
target_include_directories(hk_gtest SYSTEM PUBLIC "${HAKMEM_GTEST_DIR}/include" PRIVATE "${HAKMEM_GTEST_DIR}")
target_compile_options(hk_gtest PRIVATE -O1 -g0 -w)

add_library(hk_core STATIC EXCLUDE_FROM_ALL ${HAKMEM_SOURCES})
target_link_libraries(hk_core PUBLIC hakmem_core_api PRIVATE hakmem_flags)
add_library(hakmem_core_api INTERFACE)
target_include_directories(hakmem_core_api INTERFACE "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
target_compile_definitions(hakmem_core_api INTERFACE HK_DEBUG=1 HK_NO_LIBC_NAMES=1)
# The internal headers are C11 and later; this makes them readable to a C++ compiler.
set(shim "${CMAKE_SOURCE_DIR}/tests/support/cxx")
target_compile_options(hakmem_core_api INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-isystem ${shim} -include ${shim}/c_words.h>")

find_package(Threads REQUIRED)

# The calls must be made as written, or the compiler removes what is to be tested; and they may be wrong on purpose.
set(HK_TEST_AS_WRITTEN -fno-builtin -fno-allocation-dce -Wno-use-after-free -Wno-free-nonheap-object
    -Wno-mismatched-dealloc -Wno-alloc-size-larger-than)

# _hk_program(target ...): what all compiled tests have in common.
function(_hk_program target)
    cmake_parse_arguments(T "" "" "SOURCES;DEFINES;LIBRARIES" ${ARGN})
    add_executable(${target} ${T_SOURCES})
    target_compile_options(${target} PRIVATE ${HAKMEM_WARNINGS})
    target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=> HK_TEST_SLOWDOWN=${HK_TEST_SLOWDOWN} ${T_DEFINES})
    target_link_libraries(${target} PRIVATE ${T_LIBRARIES} Threads::Threads)
endfunction()

# _hk_test(name COMMAND ... options): what all tests have in common.
function(_hk_test name)
    cmake_parse_arguments(T "SERIAL" "TIMEOUT" "COMMAND;ARGS;ENV;LABELS" ${ARGN})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 60)
    endif()
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * ${HK_TEST_SLOWDOWN}")
    get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
    set(labels ${folder} ${T_LABELS})
    set(environment ${HK_TEST_ENV} ${T_ENV})
    add_test(NAME ${name} COMMAND ${T_COMMAND} ${T_ARGS} WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
    set_tests_properties(${name} PROPERTIES
        ENVIRONMENT "${environment}"
        LABELS "${labels}"
        TIMEOUT ${T_TIMEOUT}
        RUN_SERIAL ${T_SERIAL}
        SKIP_RETURN_CODE 77)
endfunction()

# _hk_serial(): the word SERIAL where a caller's option of that name is set.
macro(_hk_serial)
    set(serial "")
    if(T_SERIAL)
        set(serial SERIAL)
    endif()
endmacro()

function(hk_unit_test name)
    cmake_parse_arguments(T "NO_GTEST;SERIAL" "TIMEOUT" "SOURCES;ARGS;ENV;DEFINES" ${ARGN})
    set(libraries hk_core)
    if(NOT T_NO_GTEST)
        list(APPEND libraries hk_gtest)
    endif()
    _hk_serial()
    _hk_program(${name} SOURCES ${T_SOURCES} DEFINES ${T_DEFINES} LIBRARIES ${libraries})
    _hk_test(${name} COMMAND ${HK_TEST_LAUNCHER} $<TARGET_FILE:${name}> ARGS ${T_ARGS} ENV ${T_ENV}
        TIMEOUT ${T_TIMEOUT} LABELS unit ${serial})
endfunction()

# _hk_plain_test(name ...): what hk_preload_test and hk_linked_test have in common. PREFIX: words before the program.
function(_hk_plain_test name)
    cmake_parse_arguments(T "SERIAL" "TIMEOUT" "PREFIX;SOURCES;ARGS;ENV;DEFINES;LABELS" ${ARGN})
    _hk_serial()
    _hk_program(${name} SOURCES ${T_SOURCES} DEFINES ${T_DEFINES})
    target_compile_options(${name} PRIVATE ${HK_TEST_AS_WRITTEN})
    # By env and not as properties of the test: what watches the program runs without them.
    _hk_test(${name} COMMAND env ${T_PREFIX} ${T_ENV} $<TARGET_FILE:${name}> ARGS ${T_ARGS}
        TIMEOUT ${T_TIMEOUT} LABELS ${T_LABELS} ${serial})
endfunction()

function(hk_preload_test name)
    if(native)
        _hk_plain_test(${name} ${ARGN} PREFIX LD_PRELOAD=$<TARGET_FILE:hakmem> LABELS preload)
        add_dependencies(${name} hakmem)
    endif()
endfunction()

function(hk_linked_test name)
    if(NOT native)
        return()
    endif()
    cmake_parse_arguments(T "STATIC_PIE;STATIC" "" "" ${ARGN})
    _hk_plain_test(${name} ${T_UNPARSED_ARGUMENTS} LABELS linked)
    target_link_libraries(${name} PRIVATE hakmem_static)
    if(T_STATIC_PIE)
        target_compile_options(${name} PRIVATE -fPIE)
        target_link_options(${name} PRIVATE -static-pie)
    elseif(T_STATIC)
        target_link_options(${name} PRIVATE -static)
    endif()
endfunction()

function(hk_script_test name)
    cmake_parse_arguments(T "SERIAL" "TIMEOUT" "COMMAND;ENV" ${ARGN})
    if(NOT native)
        return()
    endif()
    _hk_serial()
    _hk_test(${name} COMMAND ${T_COMMAND}
        ENV HAKMEM_LIB=$<TARGET_LINKER_FILE:hakmem> HAKMEM_ARCHIVE=$<TARGET_FILE:hakmem_static>
            HAKMEM_SOURCE_DIR=${CMAKE_SOURCE_DIR} HAKMEM_BUILD_DIR=${CMAKE_BINARY_DIR} HAKMEM_BUILD=${HAKMEM_PRESET}
            ${T_ENV}
        TIMEOUT ${T_TIMEOUT} LABELS script ${serial})
endfunction()
