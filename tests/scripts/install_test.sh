#!/usr/bin/env bash
# install_test.sh INSTALL_SH: what install_packages does on known and unknown systems; nothing is installed.
set -euo pipefail
install_sh=$1
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"

fail() { echo "FAILED: $*" >&2; exit 1; }

stub() { # stub NAME BODY: a command that replaces the real one
  printf '#!/bin/sh\n%s\n' "$2" >"$room/bin/$1"
  chmod +x "$room/bin/$1"
}

mkdir "$room/bin"
printf 'ID=debian\nVERSION_ID="12"\n' >"$room/known"
printf 'ID=fedora\nVERSION_ID=40\n' >"$room/unknown"
touch "$room/apt.log"
stub apt-get "echo \"\$@\" >>'$room/apt.log'"
stub dpkg-query "for name; do :; done; case \$name in libhwy-dev) ;; *) printf installed ;; esac"

try() { # try SYSTEM [PREFIX..]: install_packages there, its output and status in $output and $status
  local system=$1
  shift
  status=0
  output=$(PATH="$room/bin:$PATH" FAKEQUANT_OS_RELEASE="$room/$system" "$@" bash -c \
    "set -euo pipefail; source /dev/stdin; install_packages </dev/null" <"$install_sh" 2>&1) || status=$?
}

try unknown
[[ $status == 2 ]] || fail "unknown system: status $status"
[[ $output == *"fedora 40"*oneDNN*HDF5* ]] || fail "unknown system: the list of libraries, got: $output"
[[ ! -s $room/apt.log ]] || fail "unknown system: apt-get was called"

if ((EUID == 0)); then
  try known
  [[ $status == 0 ]] || fail "as root: status $status: $output"
  grep -qx 'install -y --no-install-recommends libhwy-dev' "$room/apt.log" || fail "as root: $(cat "$room/apt.log")"
  : >"$room/apt.log"
  user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
else
  user=()
fi

try known "${user[@]}"
[[ $status == 2 ]] || fail "in a pipe: status $status"
[[ $output == *"sudo apt-get install --no-install-recommends libhwy-dev"* ]] || fail "in a pipe: got: $output"
[[ ! -s $room/apt.log ]] || fail "in a pipe: apt-get was called"

stub dpkg-query 'printf installed'
try known "${user[@]}"
[[ $status == 0 && -z $output ]] || fail "nothing missing: status $status, $output"
browser() { # browser SYSTEM: the packages with add_browser there
  PATH="$room/bin" FAKEQUANT_OS_RELEASE="$room/$1" "$BASH" -c \
    "set -euo pipefail; source /dev/stdin; add_browser; echo \"\${packages[*]}\"" <"$install_sh"
}
[[ $(browser known) == *" chromium" ]] || fail "a Debian without a browser: $(browser known)"
[[ $(browser unknown) != *chromium* ]] || fail "Fedora: $(browser unknown)"
stub google-chrome "exit 0"
[[ $(browser known) != *chromium* ]] || fail "one with Chrome: $(browser known)"
echo "install: all as told"
