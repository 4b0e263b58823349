# Sourced by scripts/gpu: makes and unpacks the archive.

gpu_programs=(test_core test_calib test_reference test_layers test_train test_export golden fakequant_cli fakequant_gpu_bench)

# Shared libraries of a program, without the C library, the driver's libraries and CUDA's libraries.
shared_libraries() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libcublas|libcublasLt|libnv[^/]*)\.so'
}

make_bundle() {
  local archive=$1 architectures=$2 build=$3 root=build/gpu/fakequant-gpu program found
  if [[ -z $build ]]; then
    build=build/cuda-dev
    install_packages
    cmake --preset cuda-dev "-DCMAKE_CUDA_ARCHITECTURES=$architectures" >/dev/null
    cmake --build --preset cuda-dev --target "${gpu_programs[@]}"
  fi
  rm -rf "$root"
  mkdir -p "$root/bin" "$root/lib" "$root/source" "$(dirname "$archive")"
  for program in "${gpu_programs[@]/#fakequant_cli/fakequant}"; do
    found=$(find "$build/bin" "$build/tests" -maxdepth 1 -type f -name "$program" -perm -u+x | head -1)
    [[ -n $found ]] || { echo "$build has no $program: cmake --build $build --target ${gpu_programs[*]}" >&2; return 1; }
    install -s "$found" "$root/bin/"
  done
  mapfile -t libraries < <(shared_libraries "$root"/bin/*)
  cp -L "${libraries[@]}" "$root/lib/"
  tar -cf - --exclude=__pycache__ LICENSE data docs models tests/{cli,data,device,golden} | tar -C "$root/source" -xf -
  mkdir -p "$root/source/peers"
  cp bench/peers/{gpu,gpt,networks}.py "$root/source/peers/"
  install -m 644 scripts/lib/gpu_changes.py "$root/source/changes.py"
  install -m 644 docs/benchmarks/gpu-h200.json "$root/source/before.json"
  install scripts/lib/gpu_run.sh "$root/run"
  git rev-parse HEAD >"$root/revision" 2>/dev/null || echo unknown >"$root/revision"
  # Each program holds the library: a window as long as all of them stores it once.
  tar -C "$(dirname "$root")" -cf - "$(basename "$root")" | xz --lzma2=preset=6,dict=256MiB >"$archive"
  echo "$archive: $(du -h "$archive" | cut -f1)"
}

run_bundle() {
  local archive=$1
  shift
  [[ -r $archive ]] || { echo "$archive is not there: make it by scripts/gpu bundle" >&2; exit 2; }
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT # the function is over by then: not a local variable
  tar -C "$folder" -xf "$archive"
  "$folder/fakequant-gpu/run" "$@"
}
