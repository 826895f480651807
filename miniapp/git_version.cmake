# Writes the values of git_version.hpp, the commit of the sources, at every build; unchanged content keeps its time stamp.
# cmake -DSOURCE=dir -DOUTPUT=file -P git_version.cmake
cmake_minimum_required(VERSION 3.22)

execute_process(COMMAND git -C ${SOURCE} rev-parse --short=8 HEAD
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
                OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(dirty false)
if(changes)
  set(dirty true)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"#include \"git_version.hpp\"

namespace trainstone {
char const* const git_commit = \"@commit@\";
bool const git_dirty = @dirty@;
} // namespace trainstone
")
