#pragma once

/// Convolutions of floats on the device. As core/backend/cpu/engine/engine.h, with products by cuBLASLt: f64,
/// f32, or bf16 factors with f32 results. Activations NHWC, weights OIHW.

#include <cstdint>
#include <functional>

#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/dtype.h"

namespace fq::cuda {

void conv_forward(const ConvShape& shape, const void* x, const void* w, DType type, void* y, Device device);
void conv_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, void* dx,
                        Device device);
void conv_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, void* dw,
                           Device device);

/// Calls f(first image, images) for parts of `count` images of `bytes` each, of up to 256 MiB: what columns
/// take.
void for_images(std::int64_t count, std::int64_t bytes,
                const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace fq::cuda
