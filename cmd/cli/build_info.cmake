# Writes the .cc that defines kBuildInfo (build_info.h), only when it would change, so that a build
# without a new commit compiles nothing. Run as a script:
#   cmake -DSOURCE=DIR -DVERSION=0.1.0 -DTYPE=Release -DOUTPUT=FILE -P build_info.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
string(CONCAT text
  "#include \"cmd/cli/build_info.h\"\n\nnamespace ff::cmd {\n\n"
  "const BuildInfo kBuildInfo{\"${VERSION}\", \"${commit}\", \"${TYPE}\"};\n\n"
  "}  // namespace ff::cmd\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
