#pragma once

/// The memory of the simulated device. Closed but while it is opened; with FAKEQUANT_SIMULATED_FENCES=1 in
/// the environment always open, but a page behind every block and every block that was given back: what reads
/// or writes there faults.

#include <cstddef>
#include <map>
#include <vector>

namespace fq::simulated {

class DeviceMemory {
 public:
  DeviceMemory();

  /// Null when there are not so many bytes left.
  [[nodiscard]] void* take(std::size_t bytes);
  /// False for a pointer that was not taken.
  [[nodiscard]] bool give(void* pointer);
  [[nodiscard]] bool holds(const void* pointer) const;
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  [[nodiscard]] std::size_t reserved() const { return top_; }

  /// Open while it lives.
  class Open {
   public:
    explicit Open(DeviceMemory& memory);
    ~Open();
    Open(const Open&) = delete;  // scopes do not nest
    Open& operator=(const Open&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  void protect(bool open) const;
  [[nodiscard]] void* take_fenced(std::size_t size);

  bool fences_;
  std::byte* base_;
  std::size_t top_ = 0, in_use_ = 0, limit_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::map<const void*, std::size_t> taken_;
};

}  // namespace fq::simulated
