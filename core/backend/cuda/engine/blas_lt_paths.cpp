#include "fakequant/core/backend/cuda/engine/blas_lt_paths.h"

#include <cstdlib>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

namespace files = std::filesystem;

class PathList {
 public:
  PathList(std::string name, std::vector<files::path> wheels)
      : name_(std::move(name)), wheels_(std::move(wheels)) {
    // The name without a folder comes first, so that LD_LIBRARY_PATH takes precedence.
    paths.push_back(name_);
  }

  void add(const files::path& folder) { paths.push_back((folder / name_).string()); }
  // Only existing files are listed, which keeps the error message short.
  void add_if_there(const files::path& folder) {
    std::error_code none;
    if (files::exists(folder / name_, none)) add(folder);
  }
  /// Adds the wheels in the package folder of a Python installation.
  void add_wheels(const files::path& packages) {
    for (const auto& wheel : wheels_) add_if_there(packages / wheel);
  }
  void add_environment(const files::path& root) {
    std::error_code none;
    add_if_there(root / "lib");
    for (const auto& entry : files::directory_iterator(root / "lib", none))
      if (entry.path().filename().string().starts_with("python")) add_wheels(entry.path() / "site-packages");
  }

  std::vector<std::string> paths;

 private:
  std::string name_;
  std::vector<files::path> wheels_;
};

template <class F>
void with_variable(const char* name, F&& f) {
  if (const char* value = std::getenv(name); value != nullptr && *value != '\0') f(files::path(value));
}

std::vector<std::string> all_paths(PathList list, const files::path& program, int cuda) {
  // The user's choice comes before the default folders.
  for (const char* name : {"CUDA_PATH", "CUDA_HOME"})
    with_variable(name, [&](const files::path& root) { list.add(root / "lib64"); });
  list.add("/usr/local/cuda/lib64");
  list.add(fmt::format("/usr/local/cuda-{}/lib64", cuda));
  std::error_code none;
  const files::path own = files::absolute(program, none);
  // In a Python package, NVIDIA's wheels are in the site-packages folder above the extension module.
  for (files::path folder = own.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    list.add_wheels(folder);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    with_variable(name, [&](const files::path& root) { list.add_environment(root); });
  return list.paths;
}

}  // namespace

files::path binary_path(const void* code) {
  Dl_info found{};
  return dladdr(code, &found) != 0 && found.dli_fname != nullptr ? files::path(found.dli_fname)
                                                                 : files::path();
}

std::vector<std::string> blas_lt_paths(const files::path& program, int version) {
  return all_paths({fmt::format("libcublasLt.so.{}", version),
                    {fmt::format("nvidia/cu{}/lib", version), "nvidia/cublas/lib"}},
                   program, version);
}

std::vector<std::string> nccl_paths(const files::path& program, int version, int cuda) {
  return all_paths({fmt::format("libnccl.so.{}", version), {"nvidia/nccl/lib"}}, program, cuda);
}

void* open_first(const std::vector<std::string>& paths, const std::string& user) {
  for (const auto& path : paths)
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  throw BackendError(fmt::format(
      "[cuda] {} need {}, which cannot be opened (tried: {}): install it in the same version, put "
      "its folder in LD_LIBRARY_PATH, or use --device cpu",
      user, paths.front(), fmt::join(paths, ", ")));
}

}  // namespace fq::cuda
