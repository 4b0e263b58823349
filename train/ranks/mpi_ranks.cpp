#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/roll_call.h"

namespace fq {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::milliseconds(20);  // parts of a sum move when they are asked for
constexpr auto kPause = std::chrono::microseconds(50);
constexpr std::size_t kSegment = std::size_t{1} << 15, kOnTheWay = 4;  // elements of a sum, and how many such
constexpr double kRollCall = 2;  // seconds that a rank which waits too has to say so

std::string library() {
  char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(name, &length);
  const std::string text(name, static_cast<std::size_t>(length));
  return text.substr(0, text.find_first_of(",\n"));
}

/// MPI from the first use to the end of the process.
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

void add_bf16(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* added = static_cast<const bfloat16*>(from);
  auto* sums = static_cast<bfloat16*>(to);
  for (int i = 0; i < *count; ++i)
    sums[i] = bfloat16(static_cast<float>(sums[i]) + static_cast<float>(added[i]));
}

MPI_Op sum_of_bf16() {
  static const MPI_Op made = [] {
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(add_bf16, 1, &op);
    return op;
  }();
  return made;
}

class MpiRanks final : public Communicator {
 public:
  MpiRanks(double seconds, std::shared_ptr<const detail::RollCall> roll_call)
      : seconds_(seconds), roll_call_(std::move(roll_call)) {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    MPI_Query_thread(&threads_);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] bool any_thread() const noexcept override { return threads_ >= MPI_THREAD_SERIALIZED; }
  void max(std::span<std::int64_t> values) override { reduce(values, MPI_INT64_T, MPI_MAX); }
  void sum(std::span<std::int64_t> values) override { reduce(values, MPI_INT64_T, MPI_SUM); }
  void sum(std::span<float> values) override { reduce(values, MPI_FLOAT, MPI_SUM); }
  void sum(std::span<bfloat16> values) override { reduce(values, MPI_UINT16_T, sum_of_bf16()); }
  [[nodiscard]] std::int64_t bytes() const noexcept override { return bytes_; }

  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override {
    const int own = static_cast<int>(text.size());
    std::vector<int> lengths(static_cast<std::size_t>(size_)), begins(lengths.size());
    MPI_Request request;
    MPI_Iallgather(&own, 1, MPI_INT, lengths.data(), 1, MPI_INT, ranks_, &request);
    wait(request);
    std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
    std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
    MPI_Iallgatherv(text.data(), own, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, ranks_,
                    &request);
    wait(request);
    bytes_ += own;
    std::vector<std::string> out;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      out.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
    return out;
  }

 private:
  /// In segments, some of which are on their way at a time: a transport's buffers stay small.
  template <class T>
  void reduce(std::span<T> values, MPI_Datatype type, MPI_Op operation) {
    std::array<MPI_Request, kOnTheWay> requests;
    requests.fill(MPI_REQUEST_NULL);
    const std::size_t segments = (values.size() + kSegment - 1) / kSegment;
    for (std::size_t i = 0; i < segments + kOnTheWay; ++i) {
      MPI_Request& request = requests[i % kOnTheWay];
      if (i >= kOnTheWay && i - kOnTheWay < segments) wait(request);
      if (i >= segments) continue;
      const auto part = values.subspan(i * kSegment, std::min(kSegment, values.size() - i * kSegment));
      MPI_Iallreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()), type, operation, ranks_,
                     &request);
    }
    bytes_ += static_cast<std::int64_t>(values.size_bytes());
  }

  void wait(MPI_Request& request) const {
    const auto start = Clock::now();
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      const auto waited = Clock::now() - start;
      if (waited > std::chrono::duration<double>(seconds_)) throw_for_absent();
      if (waited < kSpin && std::this_thread::get_id() == first_) {
        std::this_thread::yield();
        continue;
      }
      roll_call_->answer();
      std::this_thread::sleep_for(kPause);
    }
  }

  [[noreturn]] void throw_for_absent() const {
    const auto absent = roll_call_->absent(kRollCall);
    throw BackendError(fmt::format(
        "[ranks] {} waited {} s for {}: {} hangs or is much slower; --rank-timeout gives them longer",
        roll_call_->names({rank_}), seconds_, absent.empty() ? "the others" : roll_call_->names(absent),
        absent.size() == 1 ? "it" : "one of them"));
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, threads_ = MPI_THREAD_SINGLE;
  std::thread::id first_ = std::this_thread::get_id();  // others wait beside its work
  double seconds_;
  std::shared_ptr<const detail::RollCall> roll_call_;
  std::int64_t bytes_ = 0;
};

}  // namespace

bool has_mpi() noexcept { return true; }

std::shared_ptr<Communicator> started_ranks(double seconds) {
  const int started = launched().ranks;
  if (started <= 1) return one_rank();
  static const Session session;
  static const auto roll_call = std::make_shared<const detail::RollCall>();
  auto out = std::make_shared<MpiRanks>(seconds, roll_call);
  FQ_CHECK(out->size() == started, "ranks",
           "{} processes were started, and this one finds {}: it was built with {}, so start it with the "
           "mpiexec of that, or without the variables of another",
           started, out->size(), library());
  return out;
}

void abort_ranks(int status) {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun != 0 && ended == 0) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace fq
