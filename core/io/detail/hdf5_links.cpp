#include "fakequant/core/io/detail/hdf5_links.h"

#include <fmt/format.h>

namespace fq::detail::h5 {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& name, std::string_view why) {
  throw FileError(path, name, fmt::format("[hdf5] {}:{} {}", path, name, why));
}

void check_hard(H5L_type_t type, const std::string& path, const std::string& name) {
  if (type != H5L_TYPE_HARD)
    refuse(path, name,
           "is a soft or external link, which are not followed: put the object itself there, as with h5copy");
}

}  // namespace

bool has_object(hid_t file, const std::string& path, const std::string& name) {
  const Lock lock;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string step = name.substr(0, end);
    begin = end + 1;
    if (step.empty() || step.back() == '/') continue;
    if (H5Lexists(file, step.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t info{};
    check(H5Lget_info(file, step.c_str(), &info, H5P_DEFAULT), path, step, "is an unreadable link");
    check_hard(info.type, path, step);
  }
  return true;
}

}  // namespace fq::detail::h5
