#!/usr/bin/env bash
# torch_venv.sh SOURCE FOLDER PYTHON: the virtual environment that the tests of fakequant.torch take torch from. Exit status 77
# where FAKEQUANT_TORCH_SITE names one, or it cannot be had.
set -euo pipefail
source=$1 folder=$2 python=$3
if [[ -n ${FAKEQUANT_TORCH_SITE:-} ]]; then
  echo "SKIPPED: torch comes from $FAKEQUANT_TORCH_SITE"
  exit 77
fi
"$python" "$source/scripts/lib/venv.py" "$folder" torch_requirements.txt --stand-ins || {
  echo "tests of fakequant.torch: FAKEQUANT_TORCH_SITE=<site-packages with torch> ctest --test-dir <build> -L python"
  exit 77
}
"$folder/bin/python" -c 'import torch; print("torch", torch.__version__)'
