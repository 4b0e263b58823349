#include <algorithm>
#include <cstddef>
#include <utility>

#include "fakequant/core/backend/cuda/runtime/work.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

template <std::size_t size>
struct Name {
  char text[size];
  constexpr Name(const char (&from)[size]) { std::copy_n(from, size, text); }  // NOLINT: from a literal
};

/// Calls the kernel and counts its work under its name. Kernels that may not throw have another type and
/// enqueue nothing.
template <Name name, class Kernel, Kernel kernel>
struct Counted {
  static constexpr Kernel call = kernel;
};
template <Name name, class R, class... P, R (*kernel)(P...)>
struct Counted<name, R (*)(P...), kernel> {
  static R call(P... arguments) {
    const KernelScope scope(name.text);
    return kernel(std::forward<P>(arguments)...);
  }
};

template <class T>
constexpr detail::UpdateKernels<T> updates{
#define FQ_KERNEL(result, name, parameters)
#define FQ_UPDATE_KERNEL(result, name, parameters) .name = Counted<#name, decltype(&name<T>), &name<T>>::call,
#include "fakequant/core/backend/kernel_list.def"
};

// Memory is allocated inside of kernels, and is no work.
constinit const detail::Kernels kernels{
#define FQ_KERNEL(result, name, parameters) .name = Counted<#name, decltype(&name), &name>::call,
#define FQ_MEMORY_KERNEL(result, name, parameters) .name = name,
#include "fakequant/core/backend/kernel_list.def"
    .update_f32 = updates<float>, .update_f64 = updates<double>};

}  // namespace

const detail::Kernels* const kernel_table = &kernels;

}  // namespace fq::cuda
