#!/usr/bin/env bash
# build_module.sh SOURCE BUILD MODULE PYTHON [DEVICE]: builds fakequant._fakequant into MODULE/fakequant, against the library in
# BUILD, and where DEVICE lists the objects of the simulated device once more with it into MODULE/simulated/fakequant.
# Exit status 77 where there is no virtual environment or no Python.h.
set -euo pipefail
source=$1 build=$2 module=$3 python=$4 device=${5:-}
[[ -x $python ]] || { echo "SKIPPED: there is no $python: PyPI is out of reach"; exit 77; }
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[[ -f $header ]] || { echo "SKIPPED: there is no $header: install python3-dev"; exit 77; }
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
cmake -S "$source/python" -B "$module" -G Ninja "-Dfakequant_DIR=$build" "-DPython_EXECUTABLE=$python" "-DFAKEQUANT_SIMULATED_DEVICE=$device" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)"
cmake --build "$module"
