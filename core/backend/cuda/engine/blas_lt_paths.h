#pragma once

/// Where cuBLASLt and NCCL may be. CUDA builds only.

#include <filesystem>
#include <string>
#include <vector>

namespace fq::cuda {

/// The file that code of this process was loaded from; empty where it is not known.
[[nodiscard]] std::filesystem::path file_of(const void* code);

/// What dlopen is to be given, in turn: the name alone (a library that is loaded already, LD_LIBRARY_PATH,
/// the system's folders); CUDA's folders, those of CUDA_PATH and CUDA_HOME first; and those of NVIDIA's
/// wheels (nvidia/cu13/lib, before CUDA 13 nvidia/cublas/lib) beside the folders above `program`, and in the
/// environments VIRTUAL_ENV and CONDA_PREFIX. Files that are not there are left out, but for CUDA's folders.
[[nodiscard]] std::vector<std::string> blas_lt_paths(const std::filesystem::path& program, int version);

/// The same of NCCL, whose wheel is nvidia/nccl, for CUDA of that version.
[[nodiscard]] std::vector<std::string> nccl_paths(const std::filesystem::path& program, int version,
                                                  int cuda);

/// The handle of the first that can be opened. Throws BackendError naming what needs it and all that were
/// tried.
[[nodiscard]] void* open_first(const std::vector<std::string>& paths, const std::string& user = "products");

}  // namespace fq::cuda
