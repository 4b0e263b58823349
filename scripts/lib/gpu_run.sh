#!/usr/bin/env bash
# Runs in the unpacked archive of scripts/gpu bundle: tests, sanitizer and benchmarks on the GPU of this machine.
# run [--only tests|sanitize|bench] [--report FILE]; exit status 1 when anything failed.
set -uo pipefail
root=$(cd "$(dirname "$0")" && pwd)
only=all report=$PWD/gpu-report.json
while (($#)); do
  case $1 in
    --only) only=${2:?}; shift ;;
    --report) report=${2:?}; shift ;;
    *) echo "run [--only tests|sanitize|bench] [--report FILE]" >&2; exit 2 ;;
  esac
  shift
done

case $only in
  all | tests | sanitize | bench) ;;
  *) echo "--only $only: give tests, sanitize or bench" >&2; exit 2 ;;
esac

# CUDA's own libraries lie where its toolkit or a Python package put them.
for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu $(python3 -c 'import nvidia.cublas, os
print(os.path.join(list(nvidia.cublas.__path__)[0], "lib"))' 2>/dev/null) $(ls -d /usr/local/cuda-*/lib64 2>/dev/null); do
  [[ -d $folder ]] && cuda_folders+=":$folder"
done
export LD_LIBRARY_PATH="$root/lib${cuda_folders:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FAKEQUANT_REQUIRE_CUDA=1 FAKEQUANT_GOLDEN_DIR="$root/source/tests/golden" OMP_WAIT_POLICY=passive

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
suites='Cuda*:*/Cuda*'
tests=(test_core test_calib test_layers test_train)
sections=()

# A member of the report: a name and a file that holds JSON.
add() { sections+=("\"$1\": $(cat "$2")"); }
# Text as a JSON string.
quoted() { printf '"%s"' "$(sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | tr -d '\r' | tr '\n\t' '  ')"; }
object() { local IFS=,; printf '{%s}' "$*"; }

wants() { [[ $only == all || $only == "$1" ]]; }

run_tests() {
  local name members=()
  for name in "${tests[@]}"; do
    echo "== $name"
    "$root/bin/$name" "--gtest_filter=$suites" "--gtest_output=json:$work/$name.json" --gtest_brief=1 || failed=1
    grep -q '"tests": [1-9]' "$work/$name.json" || { echo "$name: no test ran"; failed=1; }
    [[ -s $work/$name.json ]] && members+=("\"$name\": $(cat "$work/$name.json")") || members+=("\"$name\": null")
  done
  object "${members[@]}" >"$work/tests"
  add tests "$work/tests"
  echo "== golden"
  "$root/bin/golden" --device cuda >"$work/golden.txt" 2>&1 && status=passed || { status=failed; failed=1; }
  tail -3 "$work/golden.txt"
  printf '{"status": "%s", "output": %s}' "$status" "$(tail -5 "$work/golden.txt" | quoted)" >"$work/golden"
  add golden "$work/golden"
}

# A network trained, quantized and evaluated on the GPU: the same with and without graphs, its codes those on the CPU.
run_commands() {
  local fakequant=$root/bin/fakequant data=$root/source/data/digits.h5 status=passed
  echo "== train, calibrate, qat, evaluate, predict"
  (cd "$work" &&
    "$fakequant" train -m cnn -d "$data" -o float.h5 -e 2 --device cuda &&
    "$fakequant" calibrate --checkpoint float.h5 -d "$data" --preset int8 -o int8.h5 --device cuda &&
    "$fakequant" qat int8.h5 -d "$data" -o qat.h5 -e 1 --device cuda &&
    "$fakequant" qat int8.h5 -d "$data" -o called.h5 -e 1 --device cuda --no-capture &&
    cmp qat.h5 called.h5 &&
    "$fakequant" evaluate qat.h5 -d "$data" --device cuda &&
    "$fakequant" predict qat.h5 -d "$data" --codes -o gpu.h5 --device cuda &&
    "$fakequant" predict qat.h5 -d "$data" --codes -o cpu.h5 --device cpu &&
    cmp gpu.h5 cpu.h5) >"$work/commands.txt" 2>&1 || { status=failed; failed=1; }
  tail -4 "$work/commands.txt"
  printf '{"status": "%s", "output": %s}' "$status" "$(tail -12 "$work/commands.txt" | quoted)" >"$work/commands"
  add commands "$work/commands"
}

run_sanitizer() {
  local tool name status members=()
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  if [[ -z $sanitizer ]]; then
    [[ $only == sanitize ]] && failed=1
    echo "== no compute-sanitizer here: skipped" && echo null >"$work/sanitize" && add sanitize "$work/sanitize"
    return
  fi
  for tool in memcheck racecheck initcheck; do
    for name in "${tests[@]}"; do
      echo "== $tool $name"
      "$sanitizer" --tool "$tool" --error-exitcode 9 "$root/bin/$name" "--gtest_filter=$suites" --gtest_brief=1 \
        >"$work/sanitizer.txt" 2>&1 && status=passed || { status=failed; failed=1; }
      tail -2 "$work/sanitizer.txt"
      members+=("$(printf '"%s %s": {"status": "%s", "output": %s}' "$tool" "$name" "$status" \
        "$(tail -20 "$work/sanitizer.txt" | quoted)")")
    done
  done
  object "${members[@]}" >"$work/sanitize"
  add sanitize "$work/sanitize"
}

run_bench() {
  echo "== bench"
  "$root/bin/fakequant_gpu_bench" | tee "$work/bench.txt" || failed=1
  [[ -s $work/bench.txt ]] || { echo "bench: nothing was measured"; failed=1; }
  printf '[%s]' "$(paste -sd, "$work/bench.txt")" >"$work/bench"
  add bench "$work/bench"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit \
  --format=csv >"$work/gpu.txt" 2>&1 || failed=1
cat "$work/gpu.txt"
quoted <"$work/gpu.txt" >"$work/gpu"
add gpu "$work/gpu"
quoted <"$root/revision" >"$work/revision"
add revision "$work/revision"
if wants tests; then
  run_tests
  run_commands
fi
wants bench && run_bench
wants sanitize && run_sanitizer
{ printf '{'; IFS=,; printf '%s' "${sections[*]}"; printf '}\n'; } >"$report"
echo "report: $report"
exit $failed
