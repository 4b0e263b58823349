#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

template <class T>
constexpr detail::UpdateKernels<T> updates{
#define FQ_KERNEL(result, name, parameters)
#define FQ_UPDATE_KERNEL(result, name, parameters) .name = name<T>,
#include "fakequant/core/backend/kernel_list.def"
};

constinit const detail::Kernels kernels{
#define FQ_KERNEL(result, name, parameters) .name = name,
#include "fakequant/core/backend/kernel_list.def"
    .update_f32 = updates<float>, .update_f64 = updates<double>};

}  // namespace

const detail::Kernels* const kernel_table = &kernels;

}  // namespace fq::cuda
