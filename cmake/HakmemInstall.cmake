# cmake --install: libraries, header, pkg-config file, CMake package, manual pages, documents.
if(NOT TARGET hakmem)
    return()
endif()
include(CMakePackageConfigHelpers)

install(TARGETS hakmem hakmem_static EXPORT hakmem
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES include/hakmem/hakmem.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/hakmem")
install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# The prefix may be given only at installation, so the file names it relative to itself.
file(RELATIVE_PATH HAKMEM_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" HAKMEM_PC_PREFIX "${HAKMEM_PC_PREFIX}")
configure_file(packaging/hakmem.pc.in hakmem.pc @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/hakmem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(EXPORT hakmem NAMESPACE hakmem:: FILE hakmemConfig.cmake DESTINATION "${package_dir}")
write_basic_package_version_file(hakmemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/hakmemConfigVersion.cmake" DESTINATION "${package_dir}")

install(FILES "${CMAKE_BINARY_DIR}/man/hakmem.3" DESTINATION "${CMAKE_INSTALL_MANDIR}/man3")
install(FILES "${CMAKE_BINARY_DIR}/man/hakmem.7" DESTINATION "${CMAKE_INSTALL_MANDIR}/man7")
