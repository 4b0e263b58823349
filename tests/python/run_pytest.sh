#!/usr/bin/env bash
# run_pytest.sh MODULE PYTHON TEST TORCH: one file of tests with the package in MODULE, and torch of the virtual environment
# TORCH unless FAKEQUANT_TORCH_SITE names a folder of packages. Exit status 77 where that was not built, or when every test was
# skipped, or one is to be.
set -euo pipefail
module=$1 python=$2 test=$3 torch=$4
if [[ -z ${FAKEQUANT_TORCH_SITE:-} && -f $torch/requirements.txt ]]; then
  FAKEQUANT_TORCH_SITE=$(echo "$torch"/lib/python3*/site-packages)
  export FAKEQUANT_TORCH_SITE
fi
compgen -G "$module/fakequant/_fakequant*.so" >/dev/null || { echo "SKIPPED: the module was not built"; exit 77; }
status=0
PYTHONPATH=$module PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -p no:cacheprovider -rs -s "$test" || status=$?
[[ $status != 5 ]] || { echo "SKIPPED: no test was run"; exit 77; }
exit "$status"
