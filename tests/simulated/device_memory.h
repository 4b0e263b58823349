#pragma once

/// The memory of the simulated device. Closed but while it is opened; with FAKEQUANT_SIMULATED_FENCES=1 in
/// the environment always open, but a page behind every block and every block that was given back: what reads
/// or writes there faults.

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fq::simulated {

class DeviceMemory {
 public:
  DeviceMemory();

  using Pool = const void*;

  /// Null when there are not so many bytes left. What a block holds at first is left to `poison`.
  [[nodiscard]] void* take(std::size_t bytes, Pool pool);
  /// The bytes of a block that is given back, to be given to `drop`; 0 for a pointer that was not taken. It
  /// may be taken again at once: what is still to be done with it comes first in the order of a stream. Blocks of
  /// a pool that `never_waits` are taken again after `drop`: their next user may be another stream.
  [[nodiscard]] std::size_t give(void* pointer);
  void set_never_waits(Pool pool) { never_waits_.insert(pool); }
  [[nodiscard]] bool never_waits(Pool pool) const { return never_waits_.contains(pool); }

  /// Fills a fresh block, while the memory is open.
  void poison(void* block) const;
  /// Of a block that was given back: its pages and, with fences, access to it go.
  void drop(void* block, std::size_t bytes);
  [[nodiscard]] bool holds(const void* pointer) const;
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  [[nodiscard]] std::size_t reserved() const { return top_; }
  [[nodiscard]] std::size_t available() const { return limit_ > in_use_ ? limit_ - in_use_ : 0; }

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
  [[nodiscard]] void* take_fenced(std::size_t size, Pool pool);

  bool fences_;
  std::byte* base_;
  std::size_t top_ = 0, in_use_ = 0, limit_;
  struct Taken {
    std::size_t size;
    Pool pool;
  };
  std::map<std::pair<Pool, std::size_t>, std::vector<void*>> free_;
  std::map<const void*, Taken> taken_;
  std::map<const void*, Taken> given_;  // to pools that never wait, before `drop`
  std::set<Pool> never_waits_;
};

}  // namespace fq::simulated
