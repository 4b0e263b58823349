# Threads wait without spinning, as the machines are small; freed memory is filled, so that who reads it fails at once.
set(fakequant_test_environment "OMP_WAIT_POLICY=passive;MALLOC_PERTURB_=165")
set(fakequant_script_seconds 600)
if(FAKEQUANT_SANITIZE)
  list(APPEND fakequant_test_environment "FAKEQUANT_TEST_PATIENCE=6")
  set(fakequant_script_seconds 3600)
endif()

# tests/simulated: a CUDA runtime without a GPU, and the library's sources of kernels, compiled for the host. Programs that
# they are linked to have the device cuda:0.
function(fakequant_add_simulated_device)
  if(NOT FAKEQUANT_HAS_CUDA)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/simulated/*.cpp")
  list(TRANSFORM FAKEQUANT_FOLDERS PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE kernels)
  list(TRANSFORM kernels APPEND "/*.cu")
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${kernels})
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  foreach(kernel IN LISTS kernels) # kernels that call Thrust need its include folder
    file(STRINGS "${kernel}" calls REGEX "loops/(reduce|sort)\\.cuh")
    if(calls)
      set_source_files_properties("${kernel}" PROPERTIES INCLUDE_DIRECTORIES "${FAKEQUANT_CCCL}"
        COMPILE_DEFINITIONS THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP)
    endif()
  endforeach()
  add_library(simulated_device OBJECT ${sources} ${kernels})
  set_target_properties(simulated_device PROPERTIES UNITY_BUILD OFF # kernels stay units, as for nvcc
    POSITION_INDEPENDENT_CODE ON) # the Python module is linked to it too
  target_include_directories(simulated_device PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/simulated/kernels"
    "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/include" ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(simulated_device PRIVATE -Wmissing-declarations) # kernels are declared by their lists
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -Wno-missing-declarations) # what replaces CUDA's own
  target_link_libraries(simulated_device PRIVATE fmt::fmt)
  fakequant_test_rules(simulated_device)
  file(GLOB tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/device_errors/*.cpp")
  add_executable(test_device_errors ${tests} $<TARGET_OBJECTS:simulated_device>)
  target_link_libraries(test_device_errors PRIVATE fakequant::layers fakequant::reference GTest::gtest_main GTest::gmock OpenMP::OpenMP_CXX)
  target_include_directories(test_device_errors PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  set_target_properties(test_device_errors PROPERTIES ENABLE_EXPORTS ON)
  fakequant_test_rules(test_device_errors)
  gtest_discover_tests(test_device_errors DISCOVERY_TIMEOUT 60 PROPERTIES LABELS cuda TIMEOUT 120)
endfunction()

# Compile rules of every test program.
function(fakequant_test_rules target)
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE FAKEQUANT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    FAKEQUANT_BINARY_DIR="${PROJECT_BINARY_DIR}" FAKEQUANT_COMMAND="${PROJECT_BINARY_DIR}/bin/fakequant")
  fakequant_compile_rules(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>) # more takes longer to build than it saves
endfunction()

# test_<folder> of all sources below tests/<folder>, linked to that folder and those below it. Each source has a
# namespace of its own, so that several are compiled as one; each test draws its own random numbers (own_numbers.cpp). Suites whose name begins with Threads get the label
# "threads". Where nvcc and tests/<folder>/cuda are, test_<folder>_simulated is the same with the simulated device:
# suites whose name begins with Cuda are run in it, once more with fences behind every block of its memory, and in
# test_<folder> on the machine's own GPU, or skipped.
function(fakequant_add_gtests folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp")
  if(NOT FAKEQUANT_HAS_CUDA) # some call kernels that are not there then
    list(FILTER sources EXCLUDE REGEX "/tests/${folder}/cuda/")
  endif()
  if(NOT sources)
    return()
  endif()
  set(target test_${folder})
  set(library ${folder})
  if(folder STREQUAL "cli")
    set(library fakequant)
  endif()
  set(libraries fakequant::${library} GTest::gtest_main GTest::gmock fmt::fmt nlohmann_json::nlohmann_json hdf5::hdf5
    Threads::Threads)
  add_library(${target}_objects OBJECT ${sources} own_numbers.cpp)
  target_link_libraries(${target}_objects PRIVATE ${libraries})
  fakequant_test_rules(${target}_objects)
  set_target_properties(${target}_objects PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(TARGET test_core_objects AND NOT folder STREQUAL "core")
    target_precompile_headers(${target}_objects REUSE_FROM test_core_objects)
  else()
    fakequant_precompile(${target}_objects gtest/gtest.h fmt/format.h nlohmann/json.hpp)
  endif()
  add_executable(${target} $<TARGET_OBJECTS:${target}_objects>)
  target_link_libraries(${target} PRIVATE ${libraries} $<$<BOOL:${FAKEQUANT_OPENMP}>:OpenMP::OpenMP_CXX>)
  set(common ENVIRONMENT "${fakequant_test_environment}" TIMEOUT 300)
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60 TEST_FILTER "-Threads*:*/Threads*:Cuda*:*/Cuda*"
    PROPERTIES LABELS ${folder} ${common})
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60 TEST_FILTER "Threads*:*/Threads*"
    PROPERTIES LABELS threads ${common})
  if(FAKEQUANT_HAS_CUDA AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/cuda")
    add_executable(${target}_simulated $<TARGET_OBJECTS:${target}_objects> $<TARGET_OBJECTS:simulated_device>)
    target_link_libraries(${target}_simulated PRIVATE ${libraries} fakequant::reference
      $<$<BOOL:${FAKEQUANT_OPENMP}>:OpenMP::OpenMP_CXX>)
    set_target_properties(${target}_simulated PROPERTIES ENABLE_EXPORTS ON)
    gtest_discover_tests(${target}_simulated DISCOVERY_TIMEOUT 60 TEST_FILTER "Cuda*:*/Cuda*" TEST_SUFFIX ".simulated"
      PROPERTIES LABELS "cuda;${folder}" ${common})
    add_test(NAME ${target}_simulated.fences COMMAND ${target}_simulated --gtest_filter=Cuda*:*/Cuda*)
    set_tests_properties(${target}_simulated.fences PROPERTIES LABELS "cuda;${folder}" TIMEOUT 600
      ENVIRONMENT "${fakequant_test_environment};FAKEQUANT_SIMULATED_FENCES=1")
    add_test(NAME ${target}.gpu COMMAND ${target} --gtest_filter=Cuda*:*/Cuda*)
    set_tests_properties(${target}.gpu PROPERTIES LABELS gpu TIMEOUT 600 ENVIRONMENT "${fakequant_test_environment}"
      SKIP_REGULAR_EXPRESSION "SKIPPED: there is no GPU") # ctest looks for it in failed programs too
  endif()
endfunction()

# Debian's python3 comes first: it is the one that python3-numpy and python3-h5py belong to.
find_program(FAKEQUANT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(FAKEQUANT_PYTHON python3)

# One test that runs a script in an empty folder of its own, with FAKEQUANT (a command), FAKEQUANT_SOURCE_DIR and PYTHON
# in its environment; exit status 77 means skipped. Further arguments are properties.
function(fakequant_add_script_test name script command)
  string(REPLACE "." "/" folder "${name}")
  add_test(NAME ${name} COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/run_e2e" "${script}" "${folder}"
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${fakequant_script_seconds} SKIP_RETURN_CODE 77 ENVIRONMENT
    "${fakequant_test_environment};FAKEQUANT=$<TARGET_FILE:${command}>;FAKEQUANT_SOURCE_DIR=${PROJECT_SOURCE_DIR};PYTHON=${FAKEQUANT_PYTHON}"
    ${ARGN})
endfunction()

# End-to-end tests of the command (tests/cli/*.sh and *.py). tests/crash: libraries that make system calls fail and record them.
function(fakequant_add_e2e_tests)
  if(NOT TARGET fakequant_cli)
    return()
  endif()
  foreach(library IN ITEMS fail_calls record_calls fork_allocations)
    add_library(${library} SHARED "${CMAKE_CURRENT_SOURCE_DIR}/crash/${library}.cpp")
    target_link_libraries(${library} PRIVATE ${CMAKE_DL_LIBS})
    fakequant_compile_rules(${library})
  endforeach()
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cli/*.sh" "${CMAKE_CURRENT_SOURCE_DIR}/cli/*.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    fakequant_add_script_test(e2e.${name} "${script}" fakequant_cli LABELS e2e)
  endforeach()
  set(venv "${PROJECT_BINARY_DIR}/data-venv") # of the tests whose packages the system does not have
  add_test(NAME e2e.data_venv COMMAND "${FAKEQUANT_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/lib/venv.py" "${venv}"
    data_requirements.txt)
  set_tests_properties(e2e.data_venv PROPERTIES LABELS e2e TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP data_venv)
  set_tests_properties(e2e.tokenizers e2e.convert_parquet e2e.transformers e2e.written_files PROPERTIES FIXTURES_REQUIRED data_venv)
  set_property(TEST e2e.tokenizers e2e.convert_parquet e2e.transformers e2e.written_files APPEND PROPERTY ENVIRONMENT "PYTHON=${venv}/bin/python"
    "FAKEQUANT_PYTHON=${venv}/bin/python")
  set_property(TEST e2e.failing_calls e2e.several_writers APPEND PROPERTY ENVIRONMENT "FAIL_CALLS=$<TARGET_FILE:fail_calls>")
  set_property(TEST e2e.failing_places APPEND PROPERTY ENVIRONMENT "FAIL_CALLS=$<TARGET_FILE:fail_calls>"
    "FORK_ALLOCATIONS=$<TARGET_FILE:fork_allocations>")
  set_property(TEST e2e.power_loss APPEND PROPERTY ENVIRONMENT "RECORD_CALLS=$<TARGET_FILE:record_calls>")
endfunction()

# tests/device/*.py, of the command on the simulated device.
function(fakequant_add_device_tests)
  if(NOT TARGET fakequant_cli OR NOT TARGET simulated_device)
    return()
  endif()
  find_package(Boost 1.74 REQUIRED CONFIG COMPONENTS program_options)
  add_executable(fakequant_simulated $<TARGET_OBJECTS:fakequant_cli> $<TARGET_OBJECTS:simulated_device>)
  target_link_libraries(fakequant_simulated PRIVATE fakequant::fakequant Boost::program_options fmt::fmt
    nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX)
  set_target_properties(fakequant_simulated PROPERTIES ENABLE_EXPORTS ON)
  if(FAKEQUANT_HAS_MPI AND FAKEQUANT_HAS_NCCL)
    target_sources(fakequant_simulated PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/simulated/ranks/nccl.cpp")
    target_link_libraries(fakequant_simulated PRIVATE MPI::MPI_C)
    target_include_directories(fakequant_simulated PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" ${CUDAToolkit_INCLUDE_DIRS}
      "${FAKEQUANT_NCCL_INCLUDE}")
    fakequant_compile_rules(fakequant_simulated)
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/device/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    fakequant_add_script_test(device.${name} "${script}" fakequant_simulated LABELS cuda)
  endforeach()
endfunction()

# tests/onnx: exported files in ONNX Runtime, from PyPI in a virtual environment; skipped where that cannot be had.
# networks.py trains what all *_test.py read: FAKEQUANT_NETWORKS names its folder.
function(fakequant_add_onnx_tests)
  if(NOT TARGET fakequant_cli OR NOT FAKEQUANT_HAS_ONNX)
    return()
  endif()
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/onnx")
  set(venv "${PROJECT_BINARY_DIR}/onnx-venv")
  add_executable(onnx_operators "${source}/operators.cpp" "${source}/function_cases.cpp")
  add_executable(onnx_imported "${source}/imported.cpp")
  foreach(program onnx_operators onnx_imported)
    target_link_libraries(${program} PRIVATE fakequant::export)
    target_include_directories(${program} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    fakequant_compile_rules(${program})
    target_compile_options(${program} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
  set(common "${fakequant_test_environment};FAKEQUANT=$<TARGET_FILE:fakequant_cli>;FAKEQUANT_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  add_test(NAME onnx.venv COMMAND "${FAKEQUANT_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/lib/venv.py" "${venv}")
  set_tests_properties(onnx.venv PROPERTIES LABELS onnx TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP onnx_venv)
  add_test(NAME onnx.networks COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/run_e2e" "${source}/networks.py" "onnx/networks"
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set_tests_properties(onnx.networks PROPERTIES LABELS onnx TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP onnx_networks
    ENVIRONMENT "${common};PYTHON=${FAKEQUANT_PYTHON}")
  file(GLOB scripts CONFIGURE_DEPENDS "${source}/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    add_test(NAME onnx.${name} COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/run_e2e" "${script}" "onnx/${name}"
      WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
    set_tests_properties(onnx.${name} PROPERTIES LABELS onnx TIMEOUT 600 SKIP_RETURN_CODE 77
      FIXTURES_REQUIRED "onnx_venv;onnx_networks" ENVIRONMENT
      "${common};PYTHON=${venv}/bin/python;FAKEQUANT_PYTHON=${venv}/bin/python;FAKEQUANT_NETWORKS=${CMAKE_CURRENT_BINARY_DIR}/onnx/networks;ONNX_OPERATORS=$<TARGET_FILE:onnx_operators>;ONNX_IMPORTED=$<TARGET_FILE:onnx_imported>")
  endforeach()
endfunction()

# tests/gguf: GGUF files by gguf, from PyPI in a virtual environment that the variable names to the test; skipped if that
# cannot be installed.
function(fakequant_add_file_tests name label variable)
  if(NOT TARGET fakequant_cli)
    return()
  endif()
  set(venv "${PROJECT_BINARY_DIR}/${name}-venv")
  add_test(NAME ${name}.venv COMMAND "${FAKEQUANT_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/lib/venv.py" "${venv}"
    ${name}_requirements.txt)
  set_tests_properties(${name}.venv PROPERTIES LABELS ${label} TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP ${name}_venv)
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(test "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" test "${test}")
    fakequant_add_script_test(${name}.${test} "${script}" fakequant_cli LABELS ${label} FIXTURES_REQUIRED ${name}_venv)
    set_property(TEST ${name}.${test} APPEND PROPERTY ENVIRONMENT "${variable}=${venv}/bin/python")
  endforeach()
endfunction()

# tests/engines: exported files in engines that fakequant.engines.install makes. OpenVINO is installed by the first test; XNNPACK (1.6 GB
# with PyTorch) and llama.cpp (minutes of compiling) are not: if they are neither in FAKEQUANT_ENGINES nor in `engines` of the
# build folder, their tests are skipped with the command that installs them. Lowering programs for XNNPACK takes minutes.
function(fakequant_add_engine_tests)
  if(NOT TARGET fakequant_cli OR NOT FAKEQUANT_HAS_ONNX)
    return()
  endif()
  set(home "$ENV{FAKEQUANT_ENGINES}")
  if(NOT home)
    set(home "${PROJECT_BINARY_DIR}/engines")
  endif()
  add_test(NAME engines.openvino_home WORKING_DIRECTORY / COMMAND "${FAKEQUANT_PYTHON}" -m
    fakequant.engines.install openvino "${home}")
  set_tests_properties(engines.openvino_home PROPERTIES LABELS engines TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP openvino_home
    ENVIRONMENT "PYTHONPATH=${PROJECT_SOURCE_DIR}/python")
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/engines/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    fakequant_add_script_test(engines.${name} "${script}" fakequant_cli LABELS engines TIMEOUT 1800
      FIXTURES_REQUIRED "openvino_home;onnx_venv;onnx_networks")
    set_property(TEST engines.${name} APPEND PROPERTY ENVIRONMENT "FAKEQUANT_ENGINES=${home}"
      "FAKEQUANT_ONNX_PYTHON=${PROJECT_BINARY_DIR}/onnx-venv/bin/python"
      "FAKEQUANT_NETWORKS=${CMAKE_CURRENT_BINARY_DIR}/onnx/networks")
  endforeach()
endfunction()

# tests/package: a user's program, built against an installed tree and with this tree as a subdirectory.
function(fakequant_add_package_test way from)
  set(work "${CMAKE_CURRENT_BINARY_DIR}/package/${way}")
  file(MAKE_DIRECTORY "${work}")
  add_test(NAME package.${way} COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/package/run" ${way} "${from}" "${work}"
    "-Ddnnl_DIR=${dnnl_DIR}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}")
  set_tests_properties(package.${way} PROPERTIES LABELS package TIMEOUT 900 PROCESSORS 2)
endfunction()

# tests/golden: one program that compares with the references' recorded answers, the ctest `golden`; where nvcc is,
# `golden.simulated` and `golden.gpu` are the same with inputs on a device. tests/fuzz: one that calls the same functions
# with random inputs; a thousand of them are the ctest `fuzz`. tests/empty: one that calls them, and what golden files
# do not name, with nothing along an axis, the ctest `empty`, on a device as `golden`.
function(fakequant_add_golden_test)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/golden/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  file(GLOB fuzz CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*.cpp")
  file(GLOB empty CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/empty/*.cpp")
  add_library(golden_functions OBJECT ${sources})
  add_executable(golden golden/main.cpp)
  add_executable(fuzz_descriptors ${fuzz})
  add_executable(empty_inputs ${empty})
  foreach(target IN ITEMS golden fuzz_descriptors empty_inputs)
    target_link_libraries(${target} PRIVATE golden_functions)
  endforeach()
  target_include_directories(golden_functions PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/golden")
  target_link_libraries(golden_functions PUBLIC fakequant::layers fmt::fmt nlohmann_json::nlohmann_json hdf5::hdf5)
  target_compile_definitions(golden_functions PUBLIC FAKEQUANT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  foreach(target IN ITEMS golden_functions golden fuzz_descriptors empty_inputs)
    fakequant_compile_rules(${target})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
  add_test(NAME fuzz COMMAND fuzz_descriptors 1000)
  add_test(NAME empty COMMAND empty_inputs)
  set_tests_properties(fuzz empty PROPERTIES LABELS fuzz TIMEOUT 300 ENVIRONMENT "${fakequant_test_environment}")
  add_test(NAME golden COMMAND golden)
  add_test(NAME golden.runner COMMAND "${FAKEQUANT_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/golden/runner_test.py"
    $<TARGET_FILE:golden>)
  add_test(NAME golden.numerics COMMAND "${FAKEQUANT_PYTHON}"
    "${CMAKE_CURRENT_SOURCE_DIR}/golden/numerics_test.py" $<TARGET_FILE:golden> $<TARGET_FILE:empty_inputs>)
  set_tests_properties(golden golden.runner golden.numerics PROPERTIES LABELS golden TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${fakequant_test_environment};FAKEQUANT_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  if(FAKEQUANT_HAS_CUDA)
    add_executable(golden_simulated golden/main.cpp $<TARGET_OBJECTS:simulated_device>)
    add_executable(empty_inputs_simulated ${empty} $<TARGET_OBJECTS:simulated_device>)
    foreach(target IN ITEMS golden_simulated empty_inputs_simulated)
      target_link_libraries(${target} PRIVATE golden_functions)
      set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
      fakequant_compile_rules(${target})
    endforeach()
    add_test(NAME golden.simulated COMMAND golden_simulated --device cuda)
    add_test(NAME golden.gpu COMMAND golden --device cuda)
    add_test(NAME empty.simulated COMMAND empty_inputs_simulated --device cuda)
    add_test(NAME empty.gpu COMMAND empty_inputs --device cuda)
    set_tests_properties(golden.simulated golden.gpu empty.simulated empty.gpu PROPERTIES TIMEOUT 600
      SKIP_RETURN_CODE 77 ENVIRONMENT "${fakequant_test_environment}")
    set_tests_properties(golden.simulated empty.simulated PROPERTIES LABELS "cuda;golden")
    set_tests_properties(golden.gpu empty.gpu PROPERTIES LABELS gpu)
  endif()
endfunction()

# tests/fuzz/readers: every reader of files from outside, with changed files of tests/fuzz/corpus; a thousand of each are the
# ctest `fuzz.readers`. With FAKEQUANT_FUZZER (preset `asan`) libFuzzer calls the
# same (scripts/fuzz).
function(fakequant_add_reader_fuzz)
  if(NOT TARGET fakequant_cli)
    return()
  endif()
  find_package(Boost 1.74 REQUIRED CONFIG COMPONENTS program_options)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/readers/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/(main|libfuzzer)\\.cpp$")
  set(programs fuzz_readers main.cpp)
  if(FAKEQUANT_FUZZER)
    list(APPEND programs fuzz_libfuzzer libfuzzer.cpp)
  endif()
  add_library(fuzz_readers_objects OBJECT ${sources})
  set_target_properties(fuzz_readers_objects PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  fakequant_precompile(fuzz_readers_objects fmt/format.h nlohmann/json.hpp)
  while(programs)
    list(POP_FRONT programs program main)
    add_executable(${program} "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/readers/${main}" $<TARGET_OBJECTS:fuzz_readers_objects>
      $<TARGET_OBJECTS:fakequant_cli>)
    target_link_options(${program} PRIVATE LINKER:--wrap=main) # the command's objects have one
    list(APPEND targets ${program})
  endwhile()
  foreach(target IN ITEMS fuzz_readers_objects LISTS targets)
    target_link_libraries(${target} PRIVATE fakequant::fakequant Boost::program_options fmt::fmt nlohmann_json::nlohmann_json
      hdf5::hdf5)
    fakequant_test_rules(${target})
  endforeach()
  if(FAKEQUANT_FUZZER)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-runtime-dir OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    find_library(FAKEQUANT_LIBFUZZER clang_rt.fuzzer_no_main-${CMAKE_SYSTEM_PROCESSOR} PATHS "${runtime}" REQUIRED NO_DEFAULT_PATH)
    target_link_libraries(fuzz_libfuzzer PRIVATE "${FAKEQUANT_LIBFUZZER}")
  endif()
  add_test(NAME fuzz.readers COMMAND fuzz_readers)
  set_tests_properties(fuzz.readers PROPERTIES LABELS fuzz TIMEOUT 300 ENVIRONMENT "${fakequant_test_environment};OMP_NUM_THREADS=1")
endfunction()

# tests/python: the package. Its module is built here, against the library of this tree, with nanobind from PyPI in a
# virtual environment; skipped where that or Python.h cannot be had.
function(fakequant_add_python_tests)
  if(NOT FAKEQUANT_INSTALL OR FAKEQUANT_SANITIZE)
    return() # the tree cannot be found as a package then; a sanitizer's library does not load into a foreign process
  endif()
  set(venv "${PROJECT_BINARY_DIR}/python-venv")
  set(module "${PROJECT_BINARY_DIR}/python-module")
  add_test(NAME python.venv COMMAND "${FAKEQUANT_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/lib/venv.py" "${venv}"
    python_requirements.txt)
  set_tests_properties(python.venv PROPERTIES LABELS python TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP python_venv)
  set(device "")
  if(TARGET simulated_device)
    set(device "${CMAKE_CURRENT_BINARY_DIR}/simulated_objects.txt")
    file(GENERATE OUTPUT "${device}" CONTENT "$<JOIN:$<TARGET_OBJECTS:simulated_device>,\n>\n")
  endif()
  add_test(NAME python.module COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/python/build_module.sh" "${PROJECT_SOURCE_DIR}"
    "${PROJECT_BINARY_DIR}" "${module}" "${venv}/bin/python" "${device}")
  set_tests_properties(python.module PROPERTIES LABELS python TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED python_venv
    FIXTURES_SETUP python_module PROCESSORS 2)
  # torch, torchao and ModelOpt for the tests of fakequant.torch, unless FAKEQUANT_TORCH_SITE names a folder that has them.
  set(torch_venv "${PROJECT_BINARY_DIR}/torch-venv")
  add_test(NAME python.torch_venv COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/python/torch_venv.sh" "${PROJECT_SOURCE_DIR}"
    "${torch_venv}" "${FAKEQUANT_PYTHON}")
  set_tests_properties(python.torch_venv PROPERTIES LABELS python TIMEOUT 1200 SKIP_RETURN_CODE 77 FIXTURES_SETUP python_torch)
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/python/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    set(own "${module}")
    if(name STREQUAL "gpu_arrays")
      set(own "${module}/simulated") # the module on the simulated device; skipped without nvcc
    endif()
    set(tests python.${name})
    add_test(NAME python.${name} COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/python/run_pytest.sh" "${own}"
      "${venv}/bin/python" "${script}" "${torch_venv}")
    if(name STREQUAL "gpu_arrays")
      list(APPEND tests python.${name}.gpu) # skipped without a GPU
      add_test(NAME python.${name}.gpu COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/python/run_pytest.sh" "${module}"
        "${venv}/bin/python" "${script}" "${torch_venv}")
    endif()
    set_tests_properties(${tests} PROPERTIES LABELS python TIMEOUT 300 SKIP_RETURN_CODE 77
      FIXTURES_REQUIRED "python_venv;python_module;python_torch" ENVIRONMENT
      "${fakequant_test_environment};FAKEQUANT_SOURCE_DIR=${PROJECT_SOURCE_DIR};FAKEQUANT=$<TARGET_FILE:fakequant_cli>;FAKEQUANT_QAT_EXAMPLE=${PROJECT_BINARY_DIR}/examples/example_qat_network")
  endforeach()
endfunction()

# tests/sass: the machine code of the build's own objects, by NVIDIA's disassemblers.
function(fakequant_add_sass_test)
  if(NOT FAKEQUANT_HAS_CUDA)
    return()
  endif()
  set(venv "${PROJECT_BINARY_DIR}/sass-venv")
  set(list "${CMAKE_CURRENT_BINARY_DIR}/sass_objects.txt")
  file(GENERATE OUTPUT "${list}"
    CONTENT "$<JOIN:$<TARGET_OBJECTS:fakequant_core>;$<TARGET_OBJECTS:fakequant_reference>,\n>\n")
  add_test(NAME sass.venv COMMAND "${FAKEQUANT_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/lib/venv.py" "${venv}"
    sass_requirements.txt)
  set_tests_properties(sass.venv PROPERTIES LABELS cuda TIMEOUT 300 SKIP_RETURN_CODE 77 FIXTURES_SETUP sass_venv)
  add_test(NAME sass.kernels COMMAND "${FAKEQUANT_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/sass/sass_test.py" "${list}" "${venv}"
    "${CMAKE_CURRENT_BINARY_DIR}/sass.json")
  set_tests_properties(sass.kernels PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED sass_venv)
endfunction()
