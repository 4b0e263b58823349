#!/usr/bin/env bash
# onnx_venv.sh FOLDER [PYTHON [REQUIREMENTS [WITH]]]: a virtual environment with ONNX Runtime, or what a file beside this
# one lists; made once, and again when its packages change. The list is complete; WITH is a Python
# script beside this one that then gets its packages' folder. Exit status 77 when it cannot be had.
set -euo pipefail
folder=$1 python=${2:-python3} with=${4:-}
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wanted=$lib/${3:-onnx_requirements.txt} step=${with:+$lib/$with}
[[ $folder == /* ]] || folder=$PWD/$folder
[[ $python != */* || $python == /* ]] || python=$PWD/$python
# No Python here imports modules of the caller's folder: -I, and / for the Pythons that venv and pip start without it.
cd /

make_venv() {
  rm -rf "$folder" "$folder.part" &&
    "$python" -I -m venv "$folder.part" &&
    "$folder.part/bin/python" -I -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: \
      --retries 1 --timeout 15 -r "$wanted" &&
    { [[ -z $step ]] || python3 -I "$step" "$(echo "$folder.part"/lib/python3*/site-packages)"; } &&
    cp "$wanted" "$folder.part/requirements.txt" &&
    mv "$folder.part" "$folder" # a whole environment appears under its name at once
}

cmp -s "$wanted" "$folder/requirements.txt" && exit
mkdir -p "$(dirname "$folder")"
make_venv >"$folder.log" 2>&1 || {
  rm -rf "$folder.part"
  echo "SKIPPED: none of ${wanted##*/}: $(tail -n 1 "$folder.log") ($folder.log); it takes $python with venv, and PyPI"
  exit 77
}
