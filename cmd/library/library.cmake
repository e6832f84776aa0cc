# libff.so, of the same objects as ff. It takes what it needs of them, and so needs no other library
# itself. Debian's archives of these five may stand anywhere, too; not those of libibverbs, and of
# protobuf, whose thread-local data belongs to a program: bootstrap builds that one.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cc)
add_library(ff_library OBJECT ${sources})
target_link_libraries(ff_library PRIVATE ff_options)
target_precompile_headers(ff_library REUSE_FROM ff_base)
target_sources(ff_bindings PRIVATE $<TARGET_OBJECTS:ff_library>)
set_target_properties(ff_bindings PROPERTIES OUTPUT_NAME ff SOVERSION 1)  # of ff.h
target_compile_definitions(ff_bindings PRIVATE FF_VERSION="${PROJECT_VERSION}")
target_precompile_headers(ff_bindings REUSE_FROM ff_base)
get_property(parts GLOBAL PROPERTY FF_BINDINGS_PARTS)
list(APPEND parts ff_options ff_client ff_meta ff_chain ff_cluster ff_kvstore ff_gateway)
list(REMOVE_DUPLICATES parts)
list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_FILE:\\1>")
target_link_libraries(ff_bindings PRIVATE "$<LINK_GROUP:RESCAN,${parts}>" Threads::Threads
                      ${FF_PROTOBUF_DIR}/lib/libprotobuf-lite.a
                      -l:libssl.a -l:libcrypto.a -l:libzstd.a -l:liburing.a -l:libdeflate.a)
target_link_options(ff_bindings PRIVATE -static-libstdc++ -static-libgcc
                    -Wl,--exclude-libs,ALL -Wl,-z,now
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/core/training/bindings/exports.txt
                    $<$<CONFIG:Release>:-s>)
if(NOT FF_SANITIZE)  # whose functions the program brings along
  target_link_options(ff_bindings PRIVATE -Wl,-z,defs)
endif()
