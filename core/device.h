#pragma once

/// Device: the memory that holds a tensor and the processor that runs operators on it.
///
///     const Device device = Device::parse("auto");  // the first GPU, or the CPU
///     model.to(device);
///     Variable y = model(x.to(device));
///
/// Tensors move only on request. All inputs of an operator must be on one device; its output is on the same
/// device.

#include <cstdint>
#include <string>
#include <string_view>

namespace fq {

/// `cpu`; `cuda:N`; or `meta`, which computes only shapes and byte sizes and stores nothing. A value may
/// name a GPU that this machine does not have; its first use then fails.
struct Device {
  enum class Type : unsigned char { cpu, cuda, meta };
  Type type = Type::cpu;
  /// Number of the GPU in CUDA's order; 0 for other devices.
  int index = 0;

  [[nodiscard]] static constexpr Device cpu() noexcept { return {}; }
  [[nodiscard]] static constexpr Device cuda(int index = 0) noexcept { return {Type::cuda, index}; }
  /// Device that computes shapes only. Summaries, memory plans and traces use it: it is fast for models of
  /// any size.
  [[nodiscard]] static constexpr Device meta() noexcept { return {Type::meta, 0}; }
  /// Parses "cpu", "cuda" (the first GPU), "cuda:1" or "meta". "auto" means the first usable GPU, else the
  /// CPU. Throws ArgumentError for other text.
  [[nodiscard]] static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_cpu() const noexcept { return type == Type::cpu; }
  [[nodiscard]] constexpr bool is_cuda() const noexcept { return type == Type::cuda; }
  [[nodiscard]] constexpr bool is_meta() const noexcept { return type == Type::meta; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0" or "meta"; `parse` accepts each of these.
[[nodiscard]] std::string to_string(const Device& device);

/// Number of usable GPUs: 0 in builds without CUDA, without a driver, or with a driver too old for this
/// build.
[[nodiscard]] int cuda_device_count() noexcept;
/// Describes a GPU, for example "NVIDIA H200, 141 GB, compute 9.0"; returns the name of other devices.
/// Throws BackendError with the reason if the GPU cannot be used.
[[nodiscard]] std::string describe(Device device);
/// Waits for the pending work of a GPU; returns at once for other devices. Throws NumericError that names
/// the quantizer if a NaN reached one on the GPU: this error is reported only when a value is read on the
/// host. Throws BackendError if the GPU failed.
void synchronize(Device device);

/// The caching allocator of host memory uses 2 MiB aligned blocks on huge pages and free lists per size
/// class. Blocks are reused and not returned, so training steps after the first one make no system calls (a
/// fresh 13 MB activation costs 14 times a reused one).

/// Memory of a device's allocator, in bytes. On `meta` it counts hypothetical allocations; `reserved` and
/// `system_calls` are 0 there.
struct MemoryStats {
  std::int64_t in_use = 0;        ///< allocated now
  std::int64_t peak = 0;          ///< largest `in_use` since the last reset
  std::int64_t reserved = 0;      ///< obtained from the system
  std::int64_t system_calls = 0;  ///< number of allocations from the system
};

/// Returns the statistics of the process, over all threads. For CUDA devices `system_calls` is 0, because
/// the CUDA pool calls the driver.
[[nodiscard]] MemoryStats memory_stats(Device device = Device::cpu()) noexcept;
void reset_peak_memory(Device device = Device::cpu()) noexcept;
/// Returns every free block to the system and to the GPU drivers.
void release_cached_memory() noexcept;

}  // namespace fq
