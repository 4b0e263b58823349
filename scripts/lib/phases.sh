# Sourced by scripts/demo: each phase prints its name, its elapsed and its expected time.

# phase NAME EXPECTED COMMAND..: runs the command; its output goes to a log, and is shown if it fails.
phase() {
  local name=$1 expected=$2 log start=$SECONDS
  shift 2
  mkdir -p build
  log=build/phase.log
  printf '%-32s expected %s\n' "$name" "$expected"
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "$name failed after $((SECONDS - start)) s" >&2
    return 1
  fi
  printf '%-32s took %d s\n' "$name" $((SECONDS - start))
}
