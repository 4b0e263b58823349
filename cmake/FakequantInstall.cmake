# Two parts, "runtime" and, for programs that are compiled against it, "development" (cmake --install .. --component).
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fakequant")

set(targets fakequant ${FAKEQUANT_LIBRARIES})
install(TARGETS ${targets} EXPORT fakequantTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_COMPONENT development
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT fakequantTargets NAMESPACE fakequant:: DESTINATION "${package_dir}" COMPONENT development)
export(EXPORT fakequantTargets NAMESPACE fakequant::) # the build tree too can be found as a package
if(TARGET fakequant_cli)
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
install(PROGRAMS scripts/verify_onnx.py scripts/verify_gguf.py scripts/verify_openvino.py scripts/verify_executorch.py
  scripts/write_executorch.py scripts/read_parquet.py scripts/engine DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts")
set(script_modules onnx_ parquet_ engine_ executorch_ llama_ openvino_ processor stand_ins)
list(TRANSFORM script_modules PREPEND "${PROJECT_SOURCE_DIR}/scripts/lib/")
list(TRANSFORM script_modules APPEND "*.py")
file(GLOB script_modules ${script_modules})
list(APPEND script_modules "${PROJECT_SOURCE_DIR}/python/fakequant/session_settings.py")
list(APPEND script_modules "${PROJECT_SOURCE_DIR}/scripts/lib/onnx_venv.sh" "${PROJECT_SOURCE_DIR}/scripts/lib/onnx_requirements.txt")
install(DIRECTORY scripts/lib/engines DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts/lib")
install(FILES ${script_modules} DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts/lib")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/fakequantConfig.cmake.in fakequantConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(fakequantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfigVersion.cmake" DESTINATION "${package_dir}" COMPONENT development)

# What the libraries link, as a linker takes it; static ones leave it to whoever links them.
set(linked dnnl hwy fmt z)
set(linked_files ${HDF5_C_LIBRARIES})
if(FAKEQUANT_HAS_IMAGES)
  list(APPEND linked png jpeg)
endif()
if(FAKEQUANT_HAS_MPI)
  list(APPEND linked_files ${MPI_C_LIBRARIES})
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
if(BUILD_SHARED_LIBS)
  set(FAKEQUANT_PC_PRIVATE "${FAKEQUANT_PC_LIBRARIES}")
  set(FAKEQUANT_PC_LIBRARIES "")
endif()
set(FAKEQUANT_PC_OWN "")
foreach(library IN LISTS FAKEQUANT_LIBRARIES)
  string(PREPEND FAKEQUANT_PC_OWN " -l${library}") # who needs stands before what is needed
endforeach()
file(RELATIVE_PATH FAKEQUANT_PC_UP "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /p)
configure_file(cmake/fakequant.pc.in fakequant.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fakequant.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT development)
