#include "fakequant/train/ranks/detail/mpi/session.h"

#include <cstdlib>

#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/mpi/mpi_header.h"

namespace fq {
namespace mpi {
namespace {

class Session {
 public:
  Session() {
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun != 0) return;
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    own_ = true;
  }
  ~Session() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (own_ && ended == 0) MPI_Finalize();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  bool own_ = false;
};

}  // namespace

void begin() { static const Session session; }

std::string library() {
  char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(name, &length);
  const std::string text(name, static_cast<std::size_t>(length));
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace mpi

bool has_mpi() noexcept { return true; }

void abort_ranks(int status) {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun != 0 && ended == 0) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace fq
