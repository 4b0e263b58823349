#pragma once

/// Pooling of channels_last tensors. As fq::cpu has it, with its bits: every result is gathered by one
/// thread, in the CPU's order.

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

using fq::detail::PoolSizes;

void max_pool(const Tensor& x, const PoolSizes& sizes, Tensor& y, Tensor* argmax, const Tensor& factor);
void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& sizes, Tensor& dx);

void avg_pool(const Tensor& x, const PoolSizes& sizes, bool include_padding, const Tensor& scale, Tensor& y);
void avg_pool_backward(const Tensor& dy, const PoolSizes& sizes, bool include_padding, Tensor& dx);

void sum_pixels(const Tensor& codes, Tensor& sums);

void reorder_e4m3(const Tensor& bytes, Tensor& out);

}  // namespace fq::cuda
