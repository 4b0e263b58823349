# Three parts, "runtime", "mpi", which is for ranks, and, for programs that are compiled against it, "development"
# (cmake --install .. --component).
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fakequant")

set(targets fakequant ${FAKEQUANT_LIBRARIES})
install(TARGETS ${targets} EXPORT fakequantTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_COMPONENT development
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT fakequantTargets NAMESPACE fakequant:: DESTINATION "${package_dir}" COMPONENT development)
export(EXPORT fakequantTargets NAMESPACE fakequant::) # the build tree too can be found as a package
set(modules_dir "${CMAKE_INSTALL_LIBDIR}/fakequant")
if(BUILD_SHARED_LIBS)
  foreach(library IN LISTS FAKEQUANT_LIBRARIES)
    fakequant_one_rpath(${library} "$ORIGIN" "$ORIGIN/fakequant")
  endforeach()
endif()
if(TARGET fakequant_mpi)
  fakequant_one_rpath(fakequant_mpi)
  install(TARGETS fakequant_mpi LIBRARY DESTINATION "${modules_dir}" COMPONENT mpi)
endif()
if(TARGET fakequant_cli)
  file(RELATIVE_PATH up "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(command_rpath "$ORIGIN/../lib/fakequant" "$ORIGIN/${up}/fakequant")
  if(BUILD_SHARED_LIBS)
    list(APPEND command_rpath "$ORIGIN/../lib" "$ORIGIN/${up}")
  endif()
  list(REMOVE_DUPLICATES command_rpath) # the first is the one of the build tree
  fakequant_one_rpath(fakequant_cli ${command_rpath})
  install(TARGETS fakequant_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  if(NOT CMAKE_CROSSCOMPILING) # manual pages and completions of shells, made from the tables of flags
    install(CODE "execute_process(COMMAND \"$<TARGET_FILE:fakequant_cli>\" --manual
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\" COMMAND_ERROR_IS_FATAL ANY)")
  endif()
endif()

fakequant_public_headers(headers)
foreach(header IN LISTS headers ITEMS fakequant.h)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fakequant/${folder}"
    COMPONENT development)
endforeach()
foreach(folder IN ITEMS models recipes data)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant")
  endif()
endforeach()
# The parts of the Python package that the command runs. They work without the compiled module.
set(package "${CMAKE_INSTALL_DATADIR}/fakequant/python/fakequant")
install(FILES python/fakequant/__init__.py python/fakequant/waiting.py DESTINATION "${package}")
foreach(part IN ITEMS engines data)
  if(EXISTS "${PROJECT_SOURCE_DIR}/python/fakequant/${part}")
    install(DIRECTORY "python/fakequant/${part}" DESTINATION "${package}" PATTERN __pycache__ EXCLUDE)
  endif()
endforeach()
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/fakequantConfig.cmake.in installed/fakequantConfig.cmake
  INSTALL_DESTINATION "${package_dir}" PATH_VARS modules_dir)
set(modules_dir "${FAKEQUANT_MODULES}")
configure_package_config_file(cmake/fakequantConfig.cmake.in fakequantConfig.cmake
  INSTALL_DESTINATION "${PROJECT_BINARY_DIR}" PATH_VARS modules_dir)
write_basic_package_version_file(fakequantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/installed/fakequantConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfigVersion.cmake" DESTINATION "${package_dir}" COMPONENT development)

# Linker flags of the dependencies. Users of the static libraries have to link them.
set(linked dnnl hwy fmt z)
set(linked_files ${HDF5_C_LIBRARIES})
if(FAKEQUANT_HAS_MPI)
  list(APPEND linked dl)
endif()
if(FAKEQUANT_HAS_ONNX)
  list(APPEND linked onnx_proto protobuf)
endif()
if(FAKEQUANT_HAS_CUDA)
  list(APPEND linked_files ${CUDA_cudart_static_LIBRARY} rt dl)
endif()
set(FAKEQUANT_PC_LIBRARIES "")
foreach(library IN LISTS linked linked_files)
  if(library MATCHES "/")
    string(APPEND FAKEQUANT_PC_LIBRARIES " ${library}")
  else()
    string(APPEND FAKEQUANT_PC_LIBRARIES " -l${library}")
  endif()
endforeach()
string(APPEND FAKEQUANT_PC_LIBRARIES " ${OpenMP_CXX_FLAGS} -lpthread")
if(FAKEQUANT_HAS_MPI)
  string(APPEND FAKEQUANT_PC_LIBRARIES " -Wl,-rpath,\${libdir}/fakequant")
endif()
if(BUILD_SHARED_LIBS)
  set(FAKEQUANT_PC_PRIVATE "${FAKEQUANT_PC_LIBRARIES}")
  set(FAKEQUANT_PC_LIBRARIES "")
endif()
set(FAKEQUANT_PC_OWN "")
foreach(library IN LISTS FAKEQUANT_LIBRARIES)
  string(PREPEND FAKEQUANT_PC_OWN " -l${library}") # dependents come before their dependencies
endforeach()
file(RELATIVE_PATH FAKEQUANT_PC_UP "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /p)
configure_file(cmake/fakequant.pc.in fakequant.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fakequant.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT development)
