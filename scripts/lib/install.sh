# Sourced by scripts/test and scripts/demo: the packages that the project requires, and their installation.

packages=(g++ cmake ninja-build libdnnl-dev ocl-icd-opencl-dev libhwy-dev libhdf5-dev zlib1g-dev libboost-program-options-dev
  nlohmann-json3-dev libfmt-dev libgtest-dev libgmock-dev libbenchmark-dev libonnx-dev libprotobuf-dev libopenmpi-dev openmpi-bin
  python3 python3-venv python3-dev python3-numpy python3-h5py python3-pil)

# Adds the browser in which tests open HTML pages. Ubuntu has it only as a snap.
add_browser() {
  local name
  for name in chromium chromium-browser google-chrome chrome; do
    command -v "$name" >/dev/null && return
  done
  [[ $(system_name) != debian* ]] || packages+=(chromium)
}

# Prints "debian 12", "ubuntu 24.04", ..; in WSL2 the name of the installed distribution.
system_name() {
  local file=${FAKEQUANT_OS_RELEASE:-/etc/os-release}
  [[ -r $file ]] || { echo unknown; return; }
  (. "$file" && echo "${ID:-unknown} ${VERSION_ID:-}")
}

list_libraries() {
  cat >&2 <<END
This is '$(system_name)'; the scripts install packages on Debian 12, Debian 13 and Ubuntu 24.04 (WSL2 too).
Elsewhere, install these and run again with --no-install:
  a C++20 compiler, CMake 3.24 or newer, Ninja
  oneDNN 2.6 or newer (with OpenMP), Highway 1.0, HDF5 (C), zlib, Boost.Program_options, nlohmann-json 3.10, fmt 9
  libonnx and protobuf (optional: without them no ONNX files are read or written)
  Open MPI or another MPI with its mpiexec (optional: without it a run is one process)
  GoogleTest and GoogleMock 1.12, Google Benchmark, Python 3 with venv, its headers, numpy, h5py and Pillow
  pyarrow and tokenizers from PyPI (optional: for Parquet and tokenizer.json)
END
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

confirm() {
  local answer
  read -r -p "Run it now? [y/N] " answer
  [[ $answer == [yY]* ]]
}

apt_install() {
  "$@" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# Installs missing packages. As another user than root it prints the command first, and asks on a terminal or stops in a pipe.
install_packages() {
  case $(system_name) in
    "debian 12" | "debian 13" | "ubuntu 24.04") ;;
    *) list_libraries; exit 2 ;;
  esac
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID == 0)); then
    apt-get update -q
    apt_install
    return
  fi
  echo "Missing: ${missing[*]}" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  [[ -t 0 && -t 2 ]] && confirm || exit 2
  sudo apt-get update -q
  apt_install sudo
}

# build_preset NAME [OPTIONS OF cmake --build]: configures and builds; a second run does nothing.
# Warnings are errors where the compiler's warnings are known; elsewhere a newer compiler may have more of them.
build_preset() {
  local preset=$1 warnings=OFF
  shift
  [[ $(system_name) == "debian 12" ]] && warnings=ON
  # Device code for this machine's GPU alone; where there is none, for one architecture to compile.
  export CUDAARCHS=${CUDAARCHS:-$(nvidia-smi >/dev/null 2>&1 && echo native || echo 90)}
  mkdir -p build
  cmake --preset "$preset" -DFAKEQUANT_WERROR=$warnings >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log" >&2
    exit 1
  }
  cmake --build --preset "$preset" --parallel "$(nproc)" "$@"
}
