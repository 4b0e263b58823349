#include "fakequant/core/backend/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"

namespace fq::kernels_test {
namespace {

/// A table of CUDA, or of updates, consists of function pointers only: none may be null.
template <class Table>
void expect_filled(const Table& table) {
  constexpr std::size_t entries = sizeof(Table) / sizeof(void*);
  static_assert(sizeof(Table) % sizeof(void*) == 0);
  const void* pointers[entries];
  std::memcpy(pointers, &table, sizeof table);
  for (std::size_t i = 0; i < entries; ++i) EXPECT_NE(pointers[i], nullptr) << "entry " << i;
}

/// The table of the host lacks the kernels of CUDA alone, and no other.
void expect_host_kernels(const detail::Kernels& table) {
#define FQ_KERNEL(result, name, parameters) EXPECT_NE(table.name, nullptr) << #name;
#define FQ_CUDA_KERNEL(result, name, parameters) EXPECT_EQ(table.name, nullptr) << #name;
#include "fakequant/core/backend/kernel_list.def"
  expect_filled(table.update_f32);
  expect_filled(table.update_f64);
}

TEST(Kernels, EveryTableIsComplete) {
  expect_host_kernels(cpu::kernel_table);
  if (cuda::kernel_table == nullptr) GTEST_SKIP() << "this build has no CUDA";
  expect_filled(*cuda::kernel_table);
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
