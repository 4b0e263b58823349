#!/usr/bin/env bash
# Runs in the unpacked archive of scripts/gpu bundle, on the GPU of this machine, in the order of docs/cuda.md. Each section is in
# the report as soon as it ends, so that an interrupted run keeps its results. REPORT.log has the output of all programs.
# run [--only SECTION,..] [--report FILE] [--limit SECONDS]; exit status 1 when anything failed.
# Sections: library, golden, loops, commands, bench, changes, memcheck, racecheck, initcheck, peers.
set -uo pipefail
root=$(cd "$(dirname "$0")" && pwd)
all=library,golden,loops,commands,bench,changes,memcheck,racecheck,peers
only=$all report=$PWD/gpu-report.json limit=600
usage() { echo "run [--only SECTION,..] [--report FILE] [--limit SECONDS]; sections: $all,initcheck" >&2; exit 2; }
while (($#)); do
  case $1 in
    --only) only=${2:?}; shift ;;
    --report) report=${2:?}; shift ;;
    --limit) limit=${2:?}; shift ;;
    *) usage ;;
  esac
  shift
done
for section in ${only//,/ }; do
  [[ ",$all,initcheck," == *",$section,"* ]] || { echo "--only $section: there is no such section" >&2; usage; }
done

work=$(mktemp -d)
: >"$report.log"
trap 'rm -rf "$work"' EXIT
failed=0
suites='Cuda*:*/Cuda*'
tests=(test_core test_calib test_reference test_layers test_train test_export)
sanitized_tests=(test_calib test_reference test_layers test_train test_export test_core) # the longest last
sections=()

# Adds a member to the report (a name and a JSON file) and writes the report again.
add() {
  sections+=("\"$1\": $(cat "$2")")
  { printf '{'; local IFS=,; printf '%s' "${sections[*]}"; printf '}\n'; } >"$report.part"
  mv "$report.part" "$report"
}
# Text as a JSON string.
quoted() { printf '"%s"' "$(sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | tr -d '\r' | tr '\n\t' '  ')"; }
lines() { printf '[%s]' "$(grep '^{' "$1" | paste -sd,)"; }

# limited COMMAND..: status 124 and a line when it takes longer than the limit.
limited() {
  timeout --kill-after=10 "$limit" "$@"
  local status=$?
  ((status == 124)) && echo "ended after $limit s: $*"
  return "$status"
}
# said NAME COMMAND..: a member {"status", "output"} of the last lines that it says.
said() {
  local name=$1 status=passed
  shift
  echo "== $name"
  limited "$@" >"$work/said.txt" 2>&1 || { status=failed; failed=1; }
  tail -4 "$work/said.txt"
  { echo "== $name: $status, $SECONDS s"; cat "$work/said.txt"; } >>"$report.log"
  printf '{"status": "%s", "output": %s}' "$status" "$(tail -20 "$work/said.txt" | quoted)" >"$work/said"
  add "$name" "$work/said"
}

# CUDA's own libraries lie where its toolkit or a Python package put them. Every product needs cuBLASLt.
find_libraries() {
  local folder folders=(/usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/lib/x86_64-linux-gnu
    $(cd / && python3 -c 'import nvidia, glob
for root in nvidia.__path__: print(*glob.glob(root + "/*/lib"), sep="\n")' 2>/dev/null))
  for folder in "${folders[@]}"; do [[ -d $folder ]] && cuda_folders+=":$folder"; done
  export LD_LIBRARY_PATH="$root/lib${cuda_folders:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  blas=$(for folder in ${LD_LIBRARY_PATH//:/ }; do ls "$folder"/libcublasLt.so.1[23] 2>/dev/null; done | head -1)
  [[ -n $blas ]] && return
  echo "cuBLASLt is missing: every product needs it. Looked in ${LD_LIBRARY_PATH//:/, }; pip install nvidia-cublas has it"
  failed=1
}
export FAKEQUANT_REQUIRE_CUDA=1 FAKEQUANT_GOLDEN_DIR="$root/source/tests/golden" OMP_WAIT_POLICY=passive

run_library() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit \
    --format=csv >"$work/gpu.txt" 2>&1 || failed=1
  printf '{"gpu": %s, "revision": %s, "cublaslt": %s}' "$(quoted <"$work/gpu.txt")" "$(quoted <"$root/revision")" \
    "$(printf '%s' "${blas:-missing}" | quoted)" >"$work/machine"
  add machine "$work/machine"
  said exact_type "$root/bin/fakequant" doctor
  local name
  for name in "${tests[@]}"; do
    said "$name" "$root/bin/$name" "--gtest_filter=$suites" --gtest_brief=1
    grep -Eq '[1-9][0-9]* tests? from' "$work/said.txt" || { echo "$name: no test ran"; failed=1; }
  done
}

# A network trained, quantized and evaluated on the GPU: the same with and without graphs, its codes those on the CPU.
whole_loops() {
  local fakequant=$root/bin/fakequant data=$root/source/data/digits.h5
  cd "$work" &&
    "$fakequant" train -m cnn -d "$data" -o float.h5 -e 2 --device cuda &&
    "$fakequant" calibrate --checkpoint float.h5 -d "$data" --preset int8 -o int8.h5 --device cuda &&
    "$fakequant" qat int8.h5 -d "$data" -o qat.h5 -e 1 --device cuda &&
    "$fakequant" qat int8.h5 -d "$data" -o called.h5 -e 1 --device cuda --set capture=false &&
    cmp qat.h5 called.h5 &&
    "$fakequant" evaluate qat.h5 -d "$data" --device cuda &&
    "$fakequant" predict qat.h5 -d "$data" --codes -o gpu.h5 --device cuda &&
    "$fakequant" predict qat.h5 -d "$data" --codes -o cpu.h5 --device cpu &&
    cmp gpu.h5 cpu.h5
}

# Tests of the command, whose networks compute on the GPU.
run_commands() {
  local test
  export FAKEQUANT=$root/bin/fakequant FAKEQUANT_SOURCE_DIR=$root/source
  for test in command commands; do
    mkdir -p "$work/$test"
    said "$test" bash -c 'cd "$1" && python3 "$2"' _ "$work/$test" "$root/source/tests/device/${test}_test.py"
  done
}

run_bench() {
  echo "== bench"
  limited "$root/bin/fakequant_gpu_bench" | tee "$work/bench.txt" || failed=1
  [[ -s $work/bench.txt ]] || { echo "bench: nothing was measured"; failed=1; }
  lines "$work/bench.txt" >"$work/bench"
  add bench "$work/bench"
}

# Compares the benchmark of this run with the last report, row by row. Without the section `bench`: only kernels and products.
run_changes() {
  echo "== changes"
  [[ -s $work/bench.txt ]] || limited "$root/bin/fakequant_gpu_bench" kernel. product. >"$work/bench.txt" || failed=1
  python3 "$root/source/changes.py" "$root/source/before.json" "$work/bench.txt" | tee "$work/changes.txt" || failed=1
  lines "$work/changes.txt" >"$work/changes"
  add changes "$work/changes"
}

# sanitized_part TOOL PROGRAM PARTS PART: runs shard PART of PARTS of a program's tests under a tool.
sanitized_part() {
  GTEST_TOTAL_SHARDS=$3 GTEST_SHARD_INDEX=$4 "$sanitizer" --tool "$1" --error-exitcode 9 "$root/bin/$2" \
    "--gtest_filter=$filter" --gtest_brief=1 >"$work/part.$4.txt" 2>&1
  echo "part $4 of $3: status $?" >>"$work/part.$4.txt"
}
# sanitized TOOL PROGRAM: runs one shard of the tests per processor in parallel; status 1 if any of them failed.
sanitized() {
  local parts
  parts=$("$root/bin/$2" --gtest_list_tests "--gtest_filter=$filter" | grep -c '^  ')
  ((parts > $(nproc))) && parts=$(nproc)
  rm -f "$work"/part.*.txt
  seq 0 $((parts - 1)) | xargs -P "$parts" -I{} bash -c 'sanitized_part "$@"' _ "$1" "$2" "$parts" {}
  grep -hv '^part ' "$work"/part.*.txt
  cat "$work"/part.*.txt | grep '^part ' | sort -n -k 2
  [[ $(grep -lx 'part .*: status 0' "$work"/part.*.txt | wc -l) == "$parts" ]]
}

# CUDA graphs use memory of an arena, which a sanitizer sees as one block. racecheck runs without graphs.
run_sanitizer() {
  local tool=$1 name
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  if [[ -z $sanitizer ]]; then
    echo "== $tool: there is no compute-sanitizer" && echo null >"$work/none" && add "$tool" "$work/none"
    [[ $only == "$all" ]] || failed=1
    return
  fi
  filter=$suites
  [[ $tool == racecheck ]] && filter=$suites:-*Capture*:*Passes*
  export sanitizer filter root work
  export -f sanitized sanitized_part
  for name in "${sanitized_tests[@]}"; do said "$tool $name" bash -c 'sanitized "$@"' _ "$tool" "$name"; done
}

run_peers() {
  echo "== peers"
  limited python3 "$root/source/peers/gpu.py" | tee "$work/peers.txt" || failed=1
  lines "$work/peers.txt" >"$work/peers"
  add peers "$work/peers"
}

blas='' cuda_folders=''
find_libraries
for section in ${only//,/ }; do
  case $section in
    library) run_library ;;
    golden) said golden "$root/bin/golden" --device cuda ;;
    loops)
      export -f whole_loops
      export root work
      said loops bash -c whole_loops
      ;;
    commands) run_commands ;;
    bench) run_bench ;;
    changes) run_changes ;;
    peers) run_peers ;;
    *) run_sanitizer "$section" ;;
  esac
done
echo "report: $report"
exit $failed
