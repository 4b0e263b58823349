include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fakequant")

set(targets fakequant ${FAKEQUANT_LIBRARIES})
install(TARGETS ${targets} EXPORT fakequantTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT fakequantTargets NAMESPACE fakequant:: DESTINATION "${package_dir}")
export(EXPORT fakequantTargets NAMESPACE fakequant::) # the build tree too can be found as a package
if(TARGET fakequant_cli)
  install(TARGETS fakequant_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

fakequant_public_headers(headers)
foreach(header IN LISTS headers ITEMS fakequant.h)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fakequant/${folder}")
endforeach()
foreach(folder IN ITEMS models recipes)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant")
  endif()
endforeach()
install(PROGRAMS scripts/verify_onnx.py scripts/verify_gguf.py scripts/verify_openvino.py scripts/verify_executorch.py
  scripts/write_executorch.py scripts/read_parquet.py scripts/engine DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts")
set(script_modules onnx_ parquet_ engine_ executorch_ llama_ openvino_ processor)
list(TRANSFORM script_modules PREPEND "${PROJECT_SOURCE_DIR}/scripts/lib/")
list(TRANSFORM script_modules APPEND "*.py")
file(GLOB script_modules ${script_modules})
list(APPEND script_modules "${PROJECT_SOURCE_DIR}/scripts/lib/onnx_venv.sh" "${PROJECT_SOURCE_DIR}/scripts/lib/onnx_requirements.txt")
install(DIRECTORY scripts/lib/engines DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts/lib")
install(FILES ${script_modules} DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts/lib")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/fakequantConfig.cmake.in fakequantConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(fakequantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfigVersion.cmake" DESTINATION "${package_dir}")
