#pragma once

/// What the rest of core asks of the GPUs: which there are, their memory, copies. Builds without CUDA have
/// the same functions: no device, and every other one throws BackendError.
///
/// All work on a device is put in its one stream, in the order of the calls of all threads; nothing here
/// waits for it but what says so.

#include <cstddef>
#include <string>

#include "fakequant/core/detail/allocator.h"
#include "fakequant/core/device.h"

namespace fq {
class Storage;
}

namespace fq::cuda {

/// GPUs that can be used: 0 without a driver, with one that is too old, and in builds without CUDA.
[[nodiscard]] int device_count() noexcept;
/// Why there is none, for messages; empty where there is one.
[[nodiscard]] std::string why_unusable();
/// "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError for a device that is not there.
[[nodiscard]] std::string describe_device(Device device);

/// At least `bytes` bytes of the device's pool, 256-byte aligned, contents unspecified, once the work before
/// is done. Throws SystemError when memory is short, BackendError without the device.
[[nodiscard]] void* allocate(std::size_t bytes, Device device);
void deallocate(void* pointer, std::size_t bytes, Device device) noexcept;
[[nodiscard]] MemoryStats memory_stats(Device device) noexcept;
void reset_peak_memory(Device device) noexcept;
/// Gives free memory back to the devices.
void release_cached_memory() noexcept;

/// Somebody has asked for the address of a storage on a device, to read or to write to it.
void touched(const Storage& storage, const void* address, bool written) noexcept;

void fill_bytes(void* pointer, int value, std::size_t bytes, Device device);
/// Between two devices, of which one or both are CUDA ones. From the host the bytes are taken over before it
/// returns; to the host it waits, and throws what `wait_for` throws.
void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes);
/// Waits for all work. Throws NumericError naming the quantizer that a NaN has reached since the last time,
/// ArgumentError for a label or id out of range, BackendError when work has failed.
void wait_for(Device device);

}  // namespace fq::cuda
