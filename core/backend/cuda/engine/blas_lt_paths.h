#pragma once

/// Search paths of cuBLASLt and NCCL. CUDA builds only.

#include <filesystem>
#include <string>
#include <vector>

namespace fq::cuda {

/// Returns the file that contains the given code of this process. Empty if unknown.
[[nodiscard]] std::filesystem::path binary_path(const void* code);

/// Returns the arguments for dlopen, in order: the name alone (finds a library that is already loaded,
/// LD_LIBRARY_PATH and the system folders); CUDA's folders, CUDA_PATH and CUDA_HOME first; and the folders of
/// NVIDIA's wheels (nvidia/cu13/lib, before CUDA 13 nvidia/cublas/lib) next to the parent folders of
/// `program`, and in the environments VIRTUAL_ENV and CONDA_PREFIX. Files that do not exist are omitted,
/// except in CUDA's folders.
[[nodiscard]] std::vector<std::string> blas_lt_paths(const std::filesystem::path& program, int version);

/// Returns the arguments for NCCL, whose wheel is nvidia/nccl, for this CUDA version.
[[nodiscard]] std::vector<std::string> nccl_paths(const std::filesystem::path& program, int version,
                                                  int cuda);

/// Returns the handle of the first library that can be opened. Throws BackendError with the user of the
/// library and all paths tried.
[[nodiscard]] void* open_first(const std::vector<std::string>& paths, const std::string& user = "products");

}  // namespace fq::cuda
