# Sourced by scripts/test: tests of 64-bit ARM, built by Debian's cross compiler and run in an emulator (docs/developing.md).

arm64_sysroot=build/aarch64-sysroot
arm64_suites=(golden core calib reference layers train export)

# Processors with SDOT and without, where matrices of codes are multiplied in another way.
arm64_processors=(max cortex-a72)

install_arm64() {
  packages=(g++-aarch64-linux-gnu qemu-user-static cmake ninja-build)
  install_packages
}

# arm64_program PROCESSOR PROGRAM ARGUMENTS..
arm64_program() {
  local processor=$1
  shift
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive qemu-aarch64-static -cpu "$processor" -L "$arm64_sysroot" "$@"
}

# One process a suite: to start one takes longer there than most tests. What needs a GPU is left out.
run_arm64_suite() {
  local program=build/aarch64/tests/$1 processor
  arm64_program "${arm64_processors[0]}" "$program" --gtest_brief=1 --gtest_filter='-Cuda*:*/Cuda*' || return
  [[ $1 == test_core ]] || return 0
  for processor in "${arm64_processors[@]:1}"; do
    echo "$processor:"
    arm64_program "$processor" "$program" --gtest_brief=1 --gtest_filter='*Products*:*Exact*' || return
  done
}

# test_arm64 [SUITES..]: builds them and runs each, whatever became of the one before; fails where one failed.
test_arm64() {
  local suite failed=()
  (($#)) || set -- "${arm64_suites[@]}"
  local programs=("${@/#/test_}")
  programs=("${programs[@]/test_golden/golden}")
  scripts/lib/arm64_sysroot "$arm64_sysroot"
  build_preset aarch64 --target "${programs[@]}"
  ((run)) || return 0
  for suite in "${programs[@]}"; do
    echo "$suite:"
    run_arm64_suite "$suite" || failed+=("$suite")
  done
  ((${#failed[@]} == 0)) || { echo "failed on 64-bit ARM: ${failed[*]}" >&2; return 1; }
}
