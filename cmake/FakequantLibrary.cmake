# Makes the library of one top-level folder from all of its sources, with the rules that every folder shares.
# fakequant_add_library(<folder> [COLD] [KERNELS] [DEPENDS <folders>...] [PRECOMPILE <headers>...])
# COLD: code that is not critical for run time. It is compiled with -O1, which builds faster.
# KERNELS: sources *_kernels.cpp include themselves once per instruction set. Two kinds of Highway targets are disabled: SSSE3,
# which only processors from before 2008 need, and SVE, whose vectors cannot be array elements (64-bit ARM uses NEON). In the
# other sources an undeclared function is an error, for example a kernel whose signature differs from its list.
function(fakequant_add_library folder)
  cmake_parse_arguments(arg "COLD;KERNELS" "" "DEPENDS;PRECOMPILE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
  if(FAKEQUANT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/(.*/)?cuda/")
  endif()
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "_kernels\\.cpp$")
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS -Wno-missing-declarations
    SKIP_PRECOMPILE_HEADERS ON) # GCC 12 at -O0 takes the wrong form of intrinsics behind one
  add_library(fakequant_${folder} ${sources})
  add_library(fakequant::${folder} ALIAS fakequant_${folder})
  set_target_properties(fakequant_${folder} PROPERTIES
    EXPORT_NAME ${folder} POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(arg_KERNELS)
    set(left_out HWY_SSSE3)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      set(left_out "(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
    endif()
    target_compile_definitions(fakequant_${folder} PRIVATE "HWY_DISABLED_TARGETS=${left_out}")
    # nvcc names its unnamed namespaces, so that each of their functions would be one: tests/simulated checks these sources.
    target_compile_options(fakequant_${folder} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wmissing-declarations>")
  endif()
  target_include_directories(fakequant_${folder} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  foreach(dependency IN LISTS arg_DEPENDS)
    target_link_libraries(fakequant_${folder} PUBLIC fakequant_${dependency})
  endforeach()
  target_link_libraries(fakequant_${folder} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  fakequant_compile_rules(fakequant_${folder})
  if(arg_COLD)
    target_compile_options(fakequant_${folder} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  fakequant_precompile(fakequant_${folder} fmt/format.h ${arg_PRECOMPILE})
  if(FAKEQUANT_HAS_CUDA)
    target_link_libraries(fakequant_${folder} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

# Gives an installed target one RPATH for the build tree and the installation: `folders`, and the folders of linked libraries
# outside the system's search path. (When an installation replaces an RPATH, CMake leaves an empty entry at its end, which makes
# the loader search the current folder.)
function(fakequant_one_rpath target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${ARGN}" INSTALL_RPATH_USE_LINK_PATH ON
    BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# Precompiles headers of other projects that most sources of a target include. It has no header of this project, so that an edit
# rebuilds only its dependents. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON finds missing includes.
function(fakequant_precompile target)
  foreach(header IN ITEMS algorithm functional map memory optional string variant vector LISTS ARGN)
    target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
  endforeach()
endfunction()

# Quantization arithmetic is never contracted, on host and device; no fast-math flag anywhere. Warnings of all
# compilers are errors.
function(fakequant_compile_rules target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set(options -Wall -Wextra -Wshadow -ffp-contract=off -fno-math-errno -fno-trapping-math)
  if(FAKEQUANT_WERROR)
    list(APPEND options -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: false alarms in std::string
    list(APPEND options -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  if(FAKEQUANT_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -Wno-maybe-uninitialized) # false positives for std::optional with sanitizers
  endif()
  if(FAKEQUANT_OPENMP)
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  else()
    list(APPEND options -Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable
      -Wno-unused-but-set-variable) # what only the pragmas name
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${options} -Wpedantic>)
  if(FAKEQUANT_HAS_CUDA)
    list(APPEND options -Wno-maybe-uninitialized) # GCC 12: false alarms in groups that are filled in part
    list(JOIN options "," options)
    # CMake 3.25 does not know CUDA 13's dialects: the option is named.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${FAKEQUANT_CUDA_CODE} -std=c++20 -fmad=false --expt-relaxed-constexpr
      -Xcompiler=${options} $<$<BOOL:${FAKEQUANT_WERROR}>:-Werror=all-warnings>>)
  endif()
endfunction()

# All headers of the folders, relative to the source tree, but those below a folder that says that they are not public.
function(fakequant_public_headers out)
  list(TRANSFORM FAKEQUANT_FOLDERS APPEND "/*.h" OUTPUT_VARIABLE globs)
  list(TRANSFORM globs PREPEND "${PROJECT_SOURCE_DIR}/")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" ${globs})
  list(FILTER headers EXCLUDE REGEX "/(detail|backend|kernels|reader|writer)/")
  set(${out} ${headers} PARENT_SCOPE)
endfunction()
