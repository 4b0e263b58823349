#include "fakequant/train/ranks/detail/mpi/session.h"

#include <array>
#include <cstdlib>
#include <string>

#include "fakequant/core/error.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/mpi/functions.h"

namespace fq {
namespace mpi {
namespace {

class Session {
 public:
  Session() = default;
  ~Session() {
    if (own_) functions().end();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  bool own_ = functions().begin();
};

}  // namespace

void begin() { static const Session session; }

}  // namespace mpi

bool has_mpi() noexcept { return true; }

std::string mpi_library() {
  std::array<char, 256> name{};
  mpi::functions().version(name.data(), static_cast<int>(name.size()));
  const std::string text(name.data());
  return text.substr(0, text.find_first_of(",\n"));
}

void abort_ranks(int status) {
  try {
    if (launched().ranks > 1) mpi::functions().abort(status);
  } catch (const BackendError&) {  // has not begun
  }
  std::_Exit(status);
}

}  // namespace fq
