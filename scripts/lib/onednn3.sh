# Sourced by scripts/test: the engine's tests against oneDNN 3, from PyPI's wheel in a virtual environment.

onednn3_venv=build/onednn3-venv

# The environment gets its name when it is complete, so that a failed download leaves no part of it.
make_onednn3_venv() {
  [[ -d $onednn3_venv ]] && return
  rm -rf "$onednn3_venv.part"
  python3 -I -m venv "$onednn3_venv.part" &&
    "$onednn3_venv.part/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
      onednn-devel-cpu-gomp==2023.2.0 &&
    mv "$onednn3_venv.part" "$onednn3_venv"
}

test_onednn3() {
  if ! make_onednn3_venv >build/onednn3-venv.log 2>&1; then
    echo "SKIPPED: the engine's tests against oneDNN 3: its wheel cannot be had from PyPI (build/onednn3-venv.log)"
    return
  fi
  build_preset onednn3
  ctest --preset onednn3
}
