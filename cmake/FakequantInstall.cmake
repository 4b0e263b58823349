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
install(PROGRAMS scripts/verify_onnx.py scripts/read_parquet.py DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts")
file(GLOB script_modules "${PROJECT_SOURCE_DIR}/scripts/lib/onnx_*.py" "${PROJECT_SOURCE_DIR}/scripts/lib/parquet_*.py")
install(FILES ${script_modules} DESTINATION "${CMAKE_INSTALL_DATADIR}/fakequant/scripts/lib")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/fakequantConfig.cmake.in fakequantConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(fakequantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/fakequantConfigVersion.cmake" DESTINATION "${package_dir}")
