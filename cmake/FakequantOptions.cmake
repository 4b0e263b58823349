option(FAKEQUANT_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FAKEQUANT_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(FAKEQUANT_BUILD_COMMAND "Build the command line program" ${PROJECT_IS_TOP_LEVEL})
option(FAKEQUANT_INSTALL "Make install rules and the CMake package" ${PROJECT_IS_TOP_LEVEL})
option(FAKEQUANT_OPENMP "Use OpenMP in our own loops" ON)
option(FAKEQUANT_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
set(FAKEQUANT_SANITIZE "" CACHE STRING "Sanitizers for everything built here: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

find_program(FAKEQUANT_CCACHE ccache)
mark_as_advanced(FAKEQUANT_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND FAKEQUANT_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${FAKEQUANT_CCACHE}")
endif()

if(FAKEQUANT_SANITIZE)
  add_compile_options(-fsanitize=${FAKEQUANT_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FAKEQUANT_SANITIZE})
endif()

include(FakequantLibrary)
