# What an installation under /usr has, and the Debian package of it: `cpack` in the build folder,
# which `./bootstrap package` runs. Only the release build has it.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(rings ${CMAKE_SOURCE_DIR}/core/storage/usrbio/python)
set(libraries lib/${CMAKE_LIBRARY_ARCHITECTURE})
set(revision 1)  # of this packaging
set(FF_MAINTAINER "the ff authors <ff@localhost>" CACHE STRING
    "who answers for the Debian package: NAME <ADDRESS>")

install(TARGETS ff DESTINATION bin)
install(TARGETS ff_bindings hf3fs_api_shared DESTINATION ${libraries}
        PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
install(FILES ${CMAKE_SOURCE_DIR}/core/training/bindings/ff.h DESTINATION include/ff)
install(FILES ${CMAKE_SOURCE_DIR}/core/storage/usrbio/hf3fs_usrbio.h DESTINATION include/hf3fs)
# Programs include it with or without the folder.
install(CODE "file(CREATE_LINK hf3fs/hf3fs_usrbio.h
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/include/hf3fs_usrbio.h\" SYMBOLIC)")
install(TARGETS hf3fs_py_usrbio DESTINATION lib/python3/dist-packages
        PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/core/training/bindings/ff
                  ${rings}/hf3fs_fuse
        DESTINATION lib/python3/dist-packages FILES_MATCHING PATTERN *.py
        PATTERN __pycache__ EXCLUDE)
# The wheel of the rings: `ninja wheel`. Debian 12 has glibc 2.36.
set(wheel ${CMAKE_BINARY_DIR}/wheel)
add_custom_target(wheel VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${wheel}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${wheel}/hf3fs_fuse
  COMMAND ${CMAKE_COMMAND} -E copy ${rings}/setup.py ${CMAKE_SOURCE_DIR}/LICENSE ${wheel}
  COMMAND ${CMAKE_COMMAND} -E copy ${rings}/hf3fs_fuse/__init__.py ${rings}/hf3fs_fuse/io.py
          ${wheel}/hf3fs_fuse
  COMMAND ${CMAKE_COMMAND} -E chdir ${wheel}
          ${CMAKE_COMMAND} -E env FF_VERSION=${PROJECT_VERSION}
          FF_MODULE=$<TARGET_FILE:hf3fs_py_usrbio> FF_PLATFORM=manylinux_2_36_x86_64
          /usr/bin/python3 setup.py --quiet bdist_wheel --dist-dir ${CMAKE_BINARY_DIR})
add_dependencies(wheel hf3fs_py_usrbio)
set(shells ${CMAKE_SOURCE_DIR}/completions)
install(FILES ${shells}/ff.bash DESTINATION share/bash-completion/completions RENAME ff)
install(FILES ${shells}/_ff DESTINATION share/zsh/vendor-completions)
install(FILES ${shells}/ff.fish DESTINATION share/fish/vendor_completions.d)
# Manual pages, units, changelogs, licences.
install(CODE "execute_process(
  COMMAND bash ${here}/documents.sh $<TARGET_FILE:ff> \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\"
          ${PROJECT_VERSION}-${revision} \"${FF_MAINTAINER}\"
  COMMAND_ERROR_IS_FATAL ANY)")

# What is linked into ff, in which versions, under which licences.
set(sbom ${CMAKE_BINARY_DIR}/ff.spdx.json)
if(CMAKE_GENERATOR STREQUAL "Ninja")
  add_custom_command(TARGET ff POST_BUILD BYPRODUCTS ${sbom} VERBATIM
    COMMAND env CXX=${CMAKE_CXX_COMPILER} bash ${here}/sbom.sh ${CMAKE_BINARY_DIR} ${FF_CURL_DIR}
            ${FF_LIBPQ_DIR} ${PROJECT_VERSION} ${sbom})
endif()
install(FILES ${sbom} DESTINATION share/doc/ff OPTIONAL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ff)
set(CPACK_PACKAGE_CONTACT "${FF_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "file system, checkpoints and allreduce for AI clusters")
set(CPACK_PACKAGE_DESCRIPTION
"A replicated file system for training data and checkpoints, allreduce on
host memory, a checkpoint manager, a node validator and a time-sharing
scheduler, in one static program.
.
libff.so gives checkpoints and collective operations to programs in C, the
Python package ff to those in Python. libhf3fs_api_shared.so and the Python
package hf3fs_fuse have the rings of 3FS. No service is enabled: `man
ff-cluster` says how to begin.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser")  # for postinst; SHLIBDEPS adds the libraries
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "etcd-server | postgresql, fuse3, python3-numpy, python3-torch")
# dpkg knows these by their names, which have no ending.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA)
foreach(name postinst prerm postrm triggers shlibs)
  file(GLOB file ${here}/${name}.*)
  configure_file(${file} ${CMAKE_BINARY_DIR}/package/${name} @ONLY)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/package/${name})
endforeach()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_THREADS 0)
include(CPack)
