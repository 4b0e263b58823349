# Sourced by scripts/test: tests of 64-bit ARM, built by Debian's cross compiler and run in an emulator (docs/developing.md).

arm64_sysroot=build/aarch64-sysroot
arm64_suites=(golden core calib reference layers train export exchange)

# Excluded: tests that require a GPU, tests that depend on behaviour the emulator lacks (it reports the start time of the calling
# thread as the start time of the process), and tests that take seconds on a processor but minutes to an hour in the emulator.
arm64_left_out='Cuda*:*/Cuda*:AtomicFileTest.LockHasOneOwnerAndLeavesNoFile:FakeQuantKernels.QuotientsAreExact'
arm64_left_out+=':LargeTensor.QuantizesPast2To31Elements:BlockMapTest.CutsSplitNoBlock'
arm64_left_out+=':Memory.IsNotAllocatedAfterTheFirstStep:Hdf5DatasetTest.ReadsFilesLargerThanMemory'

# Processors with SDOT and without, where matrices of codes are multiplied in another way.
arm64_processors=(max cortex-a72)

# The suite `exchange` takes what this machine's command needs, too.
install_arm64() {
  [[ " $* " == *" exchange "* ]] || packages=(cmake ninja-build)
  packages+=(g++-aarch64-linux-gnu qemu-user-static)
  install_packages
}

arm64_target() {
  case $1 in
    golden) echo golden ;;
    exchange) echo fakequant_cli ;;
    *) echo "test_$1" ;;
  esac
}

# arm64_program PROCESSOR PROGRAM ARGUMENTS..
arm64_program() {
  local processor=$1
  shift
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive qemu-aarch64-static -cpu "$processor" -L "$arm64_sysroot" "$@"
}

# FAKEQUANT and FAKEQUANT_PYTHON: this machine's command and a Python with ONNX Runtime; the build's own where they are not set.
run_arm64_exchange() {
  local root=$PWD command=${FAKEQUANT:-$PWD/build/release/bin/fakequant} python=${FAKEQUANT_PYTHON:-$PWD/build/release/onnx-venv/bin/python}
  [[ -n ${FAKEQUANT:-} ]] || build_preset release --target fakequant_cli || return
  [[ -n ${FAKEQUANT_PYTHON:-} ]] || scripts/lib/venv.py build/release/onnx-venv || return
  FAKEQUANT=$command PYTHON=$python FAKEQUANT_PYTHON=$python FAKEQUANT_SOURCE_DIR=$root \
    FAKEQUANT_ARM64="qemu-aarch64-static -cpu ${arm64_processors[0]} -L $root/$arm64_sysroot $root/build/aarch64/bin/fakequant" \
    bash tests/run_e2e "$root/tests/arm64/exchange.py" build/aarch64/tests/arm64
}

# One process a suite: to start one takes longer there than most tests.
run_arm64_suite() {
  local program=build/aarch64/tests/$(arm64_target "$1") processor
  local tests=("$program" --gtest_brief=1)
  case $1 in
    exchange) run_arm64_exchange ;;
    golden) arm64_program "${arm64_processors[0]}" "$program" ;;
    *) arm64_program "${arm64_processors[0]}" "${tests[@]}" --gtest_filter="-$arm64_left_out" ;;
  esac || return
  [[ $1 == core ]] || return 0
  for processor in "${arm64_processors[@]:1}"; do
    echo "$processor:"
    arm64_program "$processor" "${tests[@]}" --gtest_filter='*Products*:*Exact*' || return
  done
}

# test_arm64 [SUITES..]: builds and runs all suites, also after a failure. Fails if any suite failed.
test_arm64() {
  local suite targets=() failed=()
  for suite in "$@"; do targets+=("$(arm64_target "$suite")"); done
  scripts/lib/arm64_sysroot "$arm64_sysroot"
  build_preset aarch64 --target "${targets[@]}"
  ((run)) || return 0
  for suite in "$@"; do
    echo "$suite:"
    run_arm64_suite "$suite" || failed+=("$suite")
  done
  ((${#failed[@]} == 0)) || { echo "failed on 64-bit ARM: ${failed[*]}" >&2; return 1; }
}
