# The sources of the allocator and the flags they are compiled with, by whatever target.
file(GLOB HAKMEM_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/*/*.c")
if(NOT HAKMEM_SOURCES)
    message(FATAL_ERROR "no sources in src/*/*.c")
endif()
# What only the shared library has, and what is compiled anew for the archive.
set(HAKMEM_SHARED_SOURCES "${CMAKE_SOURCE_DIR}/src/api/deep_binding.c" "${CMAKE_SOURCE_DIR}/src/api/cxx.c")
set(HAKMEM_ARCHIVE_SOURCES "${CMAKE_SOURCE_DIR}/src/api/cxx.c")
list(REMOVE_ITEM HAKMEM_SOURCES ${HAKMEM_SHARED_SOURCES})

# What every C file of ours is held to, in the library and in the tests.
set(HAKMEM_WARNINGS -Wall -Wextra -Wshadow)
if(NOT HAKMEM_SANITIZE)     # instrumented code draws warnings that are not true
    list(APPEND HAKMEM_WARNINGS -Werror)
endif()

add_library(hakmem_flags INTERFACE)
target_include_directories(hakmem_flags INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
target_compile_definitions(hakmem_flags INTERFACE _GNU_SOURCE=)
target_compile_options(hakmem_flags INTERFACE
    ${HAKMEM_WARNINGS} -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -fPIC                       # also in the archive, so that it can be linked into a static-PIE
    -fvisibility=hidden         # with the symbol map: only the API leaves the library
    -ftls-model=initial-exec    # one load for the thread's state, and no allocation by __tls_get_addr inside malloc
    -fno-plt
    -fno-semantic-interposition
    -fno-strict-aliasing        # blocks are reused with other types, under the eyes of link-time optimisation
    # We are malloc: the compiler must not reason from what malloc does, nor make a calloc of malloc and memset.
    -fno-builtin-malloc -fno-builtin-free -fno-builtin-calloc -fno-builtin-realloc
    -fno-builtin-aligned_alloc -fno-builtin-posix_memalign -fno-builtin-memalign)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    # "return" keeps the mark that says shadow stacks work, and leaves out endbr64, which "full" (a default of some
    # distributions) puts at the head of malloc and free: Linux has no indirect-branch tracking in user space.
    target_compile_options(hakmem_flags INTERFACE -fcf-protection=return)
endif()
if(HAKMEM_LTO)
    # Fat objects, so that libhakmem.a serves linkers without the plug-in too.
    target_compile_options(hakmem_flags INTERFACE -flto=auto -ffat-lto-objects)
    target_link_options(hakmem_flags INTERFACE -flto=auto)
endif()
