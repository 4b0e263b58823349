#include "fakequant/core/backend/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"

namespace fq::kernels_test {
namespace {

/// Number of kernels that only CUDA has.
constexpr std::int64_t kGpuKernels = 0
#define FQ_KERNEL(result, name, parameters)
#define FQ_GPU_KERNEL(result, name, parameters) +1
#include "fakequant/core/backend/kernel_list.def"
    ;

/// Returns the number of null entries. A table consists of function pointers only.
template <class Table>
std::int64_t null_entries(const Table& table) {
  constexpr std::size_t entries = sizeof(Table) / sizeof(void*);
  static_assert(sizeof(Table) % sizeof(void*) == 0);
  const void* pointers[entries];
  std::memcpy(pointers, &table, sizeof table);
  return std::ranges::count(pointers, nullptr);
}

TEST(Kernels, EveryTableIsComplete) {
  EXPECT_EQ(null_entries(cpu::kernel_table), kGpuKernels);
  if (cuda::kernel_table == nullptr) GTEST_SKIP() << "this build has no CUDA";
  EXPECT_EQ(null_entries(*cuda::kernel_table), 0);
}

TEST(Kernels, MetaComputesNothing) {
  const Tensor x = Tensor::empty({4, 3}, DType::f32, Device::meta());
  Tensor y = Tensor::empty({4, 3}, DType::f32, Device::meta());
  detail::run(x.device(), &detail::Kernels::scale, x, 2.0, y);
  EXPECT_EQ(detail::run(x.device(), &detail::Kernels::code_factor_dtype), DType{});
}

TEST(Kernels, BuildWithoutCudaReportsIt) {
  if (cuda::kernel_table != nullptr) GTEST_SKIP() << "this build has CUDA";
  EXPECT_THROW((void)detail::Kernels::of(Device::cuda()), BackendError);
  EXPECT_EQ(memory_stats(Device::cuda()).in_use, 0);
}

}  // namespace
}  // namespace fq::kernels_test
