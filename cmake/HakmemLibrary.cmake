# The two libraries that are shipped, of almost the same objects: libhakmem.so and libhakmem.a.
# A sanitizer brings an allocator of its own, so its builds have only the core of the tests (HakmemTest.cmake).
if(HAKMEM_SANITIZE)
    return()
endif()

add_library(hakmem_objects OBJECT ${HAKMEM_SOURCES})
target_link_libraries(hakmem_objects PRIVATE hakmem_flags)
if(HAKMEM_DEBUG)
    target_compile_definitions(hakmem_objects PRIVATE HK_DEBUG=1)
endif()

set(map "${CMAKE_SOURCE_DIR}/packaging/libhakmem.map")

add_library(hakmem_shared_objects OBJECT ${HAKMEM_SHARED_SOURCES})
target_link_libraries(hakmem_shared_objects PRIVATE hakmem_flags)
add_library(hakmem SHARED $<TARGET_OBJECTS:hakmem_objects> $<TARGET_OBJECTS:hakmem_shared_objects>)
target_link_options(hakmem PRIVATE
    $<$<BOOL:${HAKMEM_LTO}>:-flto=auto>
    "LINKER:--version-script=${map}"
    LINKER:--no-undefined       # libc is the only library we may need
    LINKER:--as-needed
    LINKER:-z,nodelete          # threads keep destructors of ours: dlclose must not unmap us
    LINKER:-z,initfirst         # the fork handlers are registered before anybody else's (src/api/start.h)
    LINKER:-z,now LINKER:-z,relro
    LINKER:-z,noexecstack
    LINKER:--hash-style=gnu
    LINKER:-O1)
set_target_properties(hakmem PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS "${map}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

add_library(hakmem_archive_objects OBJECT ${HAKMEM_ARCHIVE_SOURCES})
target_link_libraries(hakmem_archive_objects PRIVATE hakmem_flags)
target_compile_definitions(hakmem_archive_objects PRIVATE HK_ARCHIVE=1)
add_library(hakmem_static STATIC $<TARGET_OBJECTS:hakmem_objects> $<TARGET_OBJECTS:hakmem_archive_objects>)
set_target_properties(hakmem_static PROPERTIES
    OUTPUT_NAME hakmem
    EXPORT_NAME static
    ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

foreach(target hakmem hakmem_static)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(${target} INTERFACE
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# They are linked though only the C library calls malloc.
target_link_options(hakmem INTERFACE LINKER:--no-as-needed)
target_link_options(hakmem_static INTERFACE LINKER:-u,malloc
    LINKER:-z,nodelete) # a library that contains it has destructors of threads in it
add_custom_target(lib DEPENDS hakmem hakmem_static)
