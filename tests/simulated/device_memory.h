#pragma once

/// The memory of the simulated device. It is inaccessible except while it is opened. With
/// FAKEQUANT_SIMULATED_FENCES=1 in the environment it is always open, but every block is followed by an
/// inaccessible page, and freed blocks are inaccessible: accesses there fault.

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

  /// Null if fewer bytes are left. `poison` fills the block.
  [[nodiscard]] void* take(std::size_t bytes, Pool pool);
  /// The bytes of a block that is given back, to be given to `drop`; 0 for a pointer that was not taken. It
  /// may be allocated again at once: pending work on it comes first in the order of a stream. Blocks of
  /// a pool that `never_waits` are reused after `drop`: their next user may be another stream.
  [[nodiscard]] std::size_t give(void* pointer);
  void set_never_waits(Pool pool) { never_waits_.insert(pool); }
  [[nodiscard]] bool never_waits(Pool pool) const { return never_waits_.contains(pool); }

  /// Fills a fresh block, while the memory is open.
  void poison(void* block) const;
  /// Releases the pages of a freed block and, with fences, makes it inaccessible.
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
