#include "fakequant/core/io/detail/hdf5_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "fakequant/core/detail/check.h"
#if H5_VERSION_GE(1, 13, 2)
#include <H5FDdevelop.h>
#endif

namespace fq::detail::h5 {

struct DescriptorState {
  int descriptor = -1;
  int error = 0;
  haddr_t allocated = 0, end = 0;

  void write(haddr_t at, std::size_t bytes, const char* from) {
    end = std::max<haddr_t>(end, at + bytes);
    while (bytes > 0 && error == 0) {
      const auto written = ::pwrite(descriptor, from, bytes, static_cast<off_t>(at));
      if (written < 0 && errno != EINTR) error = errno;
      if (written > 0) from += written, at += haddr_t(written), bytes -= std::size_t(written);
    }
  }

  /// What was never written is zero.
  void read(haddr_t at, std::size_t bytes, char* to) {
    while (bytes > 0 && error == 0) {
      const auto got = ::pread(descriptor, to, bytes, static_cast<off_t>(at));
      if (got == 0) break;
      if (got < 0 && errno != EINTR) error = errno;
      if (got > 0) to += got, at += haddr_t(got), bytes -= std::size_t(got);
    }
    std::memset(to, 0, bytes);
  }

  void truncate() {
    end = std::max(end, allocated);
    if (error == 0 && ::ftruncate(descriptor, static_cast<off_t>(end)) != 0) error = errno;
  }
};

namespace {

/// What HDF5 calls, and what it knows of the file.
struct Driver {
  struct Open {
    H5FD_t base;  // HDF5 takes the address of one for that of the other
    DescriptorState* state;
  };

  static DescriptorState& of(const H5FD_t* file) { return *reinterpret_cast<const Open*>(file)->state; }

  static H5FD_t* open(const char*, unsigned, hid_t access, haddr_t) {
    auto* opened = new Open{};
    opened->state = *static_cast<DescriptorState* const*>(H5Pget_driver_info(access));
    return &opened->base;
  }
  static herr_t close(H5FD_t* file) {
    delete reinterpret_cast<Open*>(file);
    return 0;
  }
  static herr_t query(const H5FD_t*, unsigned long* flags) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
  }
  static haddr_t allocated(const H5FD_t* file, H5FD_mem_t) { return of(file).allocated; }
  static herr_t allocate(H5FD_t* file, H5FD_mem_t, haddr_t bytes) {
    of(file).allocated = bytes;
    return 0;
  }
  static haddr_t end(const H5FD_t* file, H5FD_mem_t) { return of(file).end; }
  static herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, void* to) {
    of(file).read(at, bytes, static_cast<char*>(to));
    return 0;
  }
  static herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, const void* from) {
    of(file).write(at, bytes, static_cast<const char*>(from));
    return 0;
  }
  static herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
    of(file).truncate();
    return 0;
  }

  /// Registered once for the process.
  static hid_t id() {
    static const hid_t registered = [] {
      static H5FD_class_t made{};
#if H5_VERSION_GE(1, 13, 2)
      made.version = H5FD_CLASS_VERSION;
      made.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED + 71);  // any that no other driver has
#endif
      made.name = "fakequant";
      made.maxaddr = (haddr_t{1} << 62) - 1;
      made.fc_degree = H5F_CLOSE_STRONG;
      made.fapl_size = sizeof(DescriptorState*);
      made.open = open;
      made.close = close;
      made.query = query;
      made.get_eoa = allocated;
      made.set_eoa = allocate;
      made.get_eof = end;
      made.read = read;
      made.write = write;
      made.truncate = truncate;
      std::fill_n(made.fl_map, std::size_t(H5FD_MEM_NTYPES), H5FD_MEM_DEFAULT);
      return FQ_CALL(H5FDregister(&made), "hdf5");
    }();
    return registered;
  }
};

}  // namespace

DescriptorFile::DescriptorFile(int descriptor) : state_(std::make_unique<DescriptorState>()) {
  const Lock lock;
  state_->descriptor = descriptor;
  const Properties access(FQ_CALL(H5Pcreate(H5P_FILE_ACCESS), "hdf5"));
  DescriptorState* const state = state_.get();
  FQ_CALL(H5Pset_driver(access.get(), Driver::id(), &state), "hdf5");
  file_ = File(FQ_CALL(H5Fcreate("fakequant", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), "hdf5"));
}

DescriptorFile::~DescriptorFile() = default;

int DescriptorFile::error() const noexcept { return state_->error; }

void DescriptorFile::close() {
  const Lock lock;
  file_ = File();
}

}  // namespace fq::detail::h5
