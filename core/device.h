#pragma once

/// Where a tensor's bytes are, and where operators on it run.
///
///     const Device device = Device::parse("auto");  // the first GPU, or the CPU
///     model.to(device);
///     Variable y = model(x.to(device));
///
/// Nothing moves by itself: all inputs of an operator lie on one device, and its output is there too.

#include <cstdint>
#include <string>
#include <string_view>

namespace fq {

/// `cpu`; `cuda:N`; or `meta`, on which shapes and byte sizes flow and nothing is computed or stored. A value
/// that may name a device this machine has not: that shows when it is first used.
struct Device {
  enum class Type : unsigned char { cpu, cuda, meta };
  Type type = Type::cpu;
  /// The number of a GPU, as CUDA counts them; 0 for the others.
  int index = 0;

  [[nodiscard]] static constexpr Device cpu() noexcept { return {}; }
  [[nodiscard]] static constexpr Device cuda(int index = 0) noexcept { return {Type::cuda, index}; }
  /// Where only shapes flow: summaries, memory plans and traces run there, on a model of any size, in no
  /// time.
  [[nodiscard]] static constexpr Device meta() noexcept { return {Type::meta, 0}; }
  /// The device of a text: "cpu", "cuda" (the first GPU), "cuda:1" or "meta"; "auto" is the first GPU that
  /// can be used, else the CPU. Throws ArgumentError on anything else.
  [[nodiscard]] static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_cpu() const noexcept { return type == Type::cpu; }
  [[nodiscard]] constexpr bool is_cuda() const noexcept { return type == Type::cuda; }
  [[nodiscard]] constexpr bool is_meta() const noexcept { return type == Type::meta; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0" or "meta"; `parse` of it gives the device back.
[[nodiscard]] std::string to_string(const Device& device);

/// The number of GPUs that can be used: 0 in builds without CUDA, without a driver, and with one too old for
/// this build.
[[nodiscard]] int cuda_device_count() noexcept;
/// What a GPU is, "NVIDIA H200, 141 GB, compute 9.0"; for other devices their name. Throws BackendError for a
/// GPU that cannot be used, saying why.
[[nodiscard]] std::string describe(Device device);
/// Waits for the work that was begun on the device; on others than GPUs there is none. Throws NumericError
/// naming the quantizer that a NaN has reached on a GPU, which nobody hears of before a value is read back;
/// BackendError when the GPU failed.
void synchronize(Device device);

/// The caching allocator of host memory: 2 MiB aligned blocks on huge pages, size-class free lists.
/// Blocks are reused, not returned, so that a training step after the first asks nothing of the system
/// (a fresh 13 MB activation costs 14 times a reused one).

/// What the allocator of a device holds, in bytes. On `meta`, what it would have handed out: nothing is asked
/// of the system, and `reserved` and `system_calls` are 0.
struct MemoryStats {
  std::int64_t in_use = 0;        ///< handed out now
  std::int64_t peak = 0;          ///< the largest `in_use` since the last reset
  std::int64_t reserved = 0;      ///< taken from the system
  std::int64_t system_calls = 0;  ///< how often the system was asked
};

/// Of the process, all threads together. Of a CUDA device `system_calls` is 0: its pool asks the driver.
[[nodiscard]] MemoryStats memory_stats(Device device = Device::cpu()) noexcept;
void reset_peak_memory(Device device = Device::cpu()) noexcept;
/// Gives every free block back to the system, and to the GPUs' drivers.
void release_cached_memory() noexcept;

}  // namespace fq
