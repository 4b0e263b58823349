# For 64-bit ARM, by Debian's g++-aarch64-linux-gnu; programs of the build run under qemu-user-static.
# FAKEQUANT_SYSROOT: a folder with arm64 libraries (scripts/lib/arm64_sysroot makes one).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi) # notes on what GCC 10 passed otherwise

if(NOT FAKEQUANT_SYSROOT)
  get_filename_component(FAKEQUANT_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-sysroot" ABSOLUTE)
endif()
set(FAKEQUANT_SYSROOT "${FAKEQUANT_SYSROOT}" CACHE PATH "arm64 libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FAKEQUANT_SYSROOT)
if(NOT EXISTS "${FAKEQUANT_SYSROOT}/usr/include")
  message(FATAL_ERROR "${FAKEQUANT_SYSROOT} has no arm64 libraries: scripts/lib/arm64_sysroot build/aarch64-sysroot unpacks them")
endif()
set(CMAKE_SYSROOT "${FAKEQUANT_SYSROOT}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${FAKEQUANT_SYSROOT}")
set(HDF5_C_COMPILER_EXECUTABLE "" CACHE FILEPATH "h5cc, which would name this machine's libraries")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
