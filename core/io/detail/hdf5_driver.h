#pragma once

/// A new HDF5 file on a descriptor of ours. HDF5 cannot recover from a disk that fills up while it writes, so
/// it never hears of one: what the system refuses is kept here, and HDF5 goes on as if it were written. It is
/// not a public header: it needs <hdf5.h>.

#include <memory>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

struct DescriptorState;

class DescriptorFile {
 public:
  /// An empty file in place of what `descriptor`, open to read and write, holds. The descriptor stays the
  /// caller's and outlives it.
  explicit DescriptorFile(int descriptor);
  ~DescriptorFile();
  DescriptorFile(const DescriptorFile&) = delete;  // HDF5 holds the address of its state
  DescriptorFile& operator=(const DescriptorFile&) = delete;

  [[nodiscard]] hid_t id() const noexcept { return file_.get(); }
  /// The errno of the first read or write that failed, 0 for none: what the descriptor holds is then no file.
  [[nodiscard]] int error() const noexcept;
  /// Writes what HDF5 holds back. Every other handle of the file must be closed.
  void close();

 private:
  std::unique_ptr<DescriptorState> state_;
  File file_;
};

}  // namespace fq::detail::h5
