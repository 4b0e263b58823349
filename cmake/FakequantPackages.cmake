# Packages that cpack makes: Debian packages, rpms or archives (docs/installing.md). `runtime` has the command, its data and the
# documents; `development` the headers, the libraries and the CMake package; `mpi` the MPI module, if MPI was found.

set(CPACK_PACKAGE_NAME fakequant)
set(CPACK_PACKAGE_VENDOR fakequant)
set(CPACK_PACKAGE_CONTACT "fakequant maintainers <maintainers@fakequant.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "Calibrates networks, trains them with fake quantization of 2 to 16 bits, FP8 and FP4 blocks, and
exports codes and scales to ONNX Runtime, TensorRT, XNNPACK and llama.cpp. The forward pass computes an engine's integers,
so that the trained network and the deployed one give the same bits.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ)
set(CPACK_COMPONENTS_ALL runtime development)
if(FAKEQUANT_HAS_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_COMPONENT_MPI_DESCRIPTION "Runs of several processes, which mpiexec or Slurm starts.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and libraries, for programs with quantization-aware training of their own.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME fakequant)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS python3) # data set conversion, and engines of verify
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "python3-venv, python3-numpy, python3-h5py, python3-pil")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS fakequant-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME fakequant-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfakequant-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "fakequant, fakequant-mpi, cmake, pkg-config")
set(linked libdnnl-dev ocl-icd-opencl-dev libhwy-dev libhdf5-dev zlib1g-dev nlohmann-json3-dev libfmt-dev)
if(FAKEQUANT_HAS_ONNX)
  list(APPEND linked libonnx-dev libprotobuf-dev)
endif()
list(JOIN linked ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_RUNTIME_PACKAGE_NAME fakequant)
set(CPACK_RPM_MPI_PACKAGE_NAME fakequant-mpi)
set(CPACK_RPM_DEVELOPMENT_PACKAGE_NAME fakequant-devel)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_GROUP Science)
set(CPACK_RPM_RUNTIME_PACKAGE_AUTOREQPROV ON)
set(CPACK_RPM_MPI_PACKAGE_AUTOREQPROV ON)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/man /usr/share/man/man1 /usr/share/zsh
  /usr/share/zsh/site-functions /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/fish
  /usr/share/fish/vendor_completions.d /usr/lib/cmake /usr/lib/pkgconfig)

include(CPack)
