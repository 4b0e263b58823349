#!/usr/bin/env bash
# run_pytest.sh MODULE PYTHON TEST: one file of tests with the package in MODULE. Exit status 77 where that was not built,
# or when every test was skipped, or one is to be.
set -euo pipefail
module=$1 python=$2 test=$3
compgen -G "$module/fakequant/_fakequant*.so" >/dev/null || { echo "SKIPPED: the module was not built"; exit 77; }
status=0
PYTHONPATH=$module PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -p no:cacheprovider -rs -s "$test" || status=$?
[[ $status != 5 ]] || { echo "SKIPPED: no test was run"; exit 77; }
exit "$status"
