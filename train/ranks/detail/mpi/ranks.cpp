#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/backend/device_ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/mpi/functions.h"
#include "fakequant/train/ranks/detail/mpi/waiting.h"

namespace fq::mpi {
namespace {

struct Ring {
  Group ranks;
  int own, size;
  const Waiting& waiting;
};

/// Messages of one ring step, `segment` elements each. A segment is used while others are still in transfer.
class Messages {
 public:
  static constexpr std::size_t segment = std::size_t{1} << 15;

  explicit Messages(const Ring& ring) : ring_(ring) {}
  ~Messages() {
    for (const auto request : received_) functions().give_up(request);  // of a step that threw
  }
  Messages(const Messages&) = delete;  // owns its requests
  Messages& operator=(const Messages&) = delete;

  template <class T>
  void send_to_next(std::span<T> values) {
    for (std::size_t at = 0; at < values.size(); at += segment)
      sent_.push_back(
          functions().send(ring_.ranks, values.data() + at, bytes(values, at), (ring_.own + 1) % ring_.size));
  }
  template <class T>
  void receive_from_last(std::span<T> values) {
    for (std::size_t at = 0; at < values.size(); at += segment)
      received_.push_back(functions().receive(ring_.ranks, values.data() + at, bytes(values, at),
                                              (ring_.own + ring_.size - 1) % ring_.size));
  }
  /// Calls use(begin) for each segment as it arrives. Returns when all segments are received and sent.
  template <class Use>
  void wait(const Use& use) {
    for (std::size_t i = 0; i < received_.size(); ++i) {
      ring_.waiting.until_done(received_[i], ring_.own);
      use(i * segment);
    }
    for (auto& request : sent_) ring_.waiting.until_done(request, ring_.own);
  }

 private:
  template <class T>
  static int bytes(std::span<T> values, std::size_t at) {
    return static_cast<int>(std::min(segment, values.size() - at) * sizeof(T));
  }

  const Ring& ring_;
  std::vector<Request> sent_, received_;
};

/// Replaces each element by the combination of the elements of all ranks. Each part of the array goes around
/// the ring twice: first it is combined, then its result is distributed (Thakur, Rabenseifner and Gropp
/// 2005). Each link carries 2 (n - 1) / n of the array's bytes. Returns the bytes that this rank sent.
template <class T, class Combine>
std::int64_t combine_in_ring(const Ring& ring, std::span<T> values, const Combine& combine) {
  const auto parts = static_cast<std::size_t>(ring.size);
  const auto part = [&](int place) {
    const auto p = static_cast<std::size_t>((place % ring.size + ring.size) % ring.size);
    const std::size_t begin = values.size() * p / parts, end = values.size() * (p + 1) / parts;
    return values.subspan(begin, end - begin);
  };
  std::int64_t bytes = 0;
  std::vector<T> come(values.size() / parts + 1);
  for (int step = 0; step < 2 * (ring.size - 1); ++step) {
    const bool complete = step >= ring.size - 1;
    const std::span<T> out = part(ring.own - step), in = part(ring.own - step - 1);
    Messages messages(ring);
    messages.receive_from_last(complete ? in : std::span(come).first(in.size()));
    messages.send_to_next(out);
    messages.wait([&](std::size_t begin) {
      if (complete) return;
      const std::size_t end = std::min(begin + Messages::segment, in.size());
      for (std::size_t i = begin; i < end; ++i) in[i] = combine(in[i], come[i]);
    });
    bytes += static_cast<std::int64_t>(out.size_bytes());
  }
  return bytes;
}

}  // namespace
}  // namespace fq::mpi

namespace fq {
namespace mpi {
namespace {

/// Joins the GPUs of all ranks. Returns null on all ranks if one of them has no NCCL, which rank 0 logs.
std::unique_ptr<detail::DeviceRanks> join_gpus(Communicator& ranks, Device device, double seconds) {
  const auto reasons = ranks.gather(detail::why_no_device_ranks());
  const auto lacks = std::ranges::find_if(reasons, [](const auto& reason) { return !reason.empty(); });
  if (lacks != reasons.end()) {
    log(LogLevel::info,
        fmt::format("[ranks] GPUs sum by way of the host: {} (rank {})", *lacks, lacks - reasons.begin()));
    return nullptr;
  }
  // NCCL's communicator has an id that rank 0 creates.
  const auto ids = ranks.gather(ranks.rank() == 0 ? detail::device_ranks_id() : std::string());
  log(LogLevel::info, fmt::format("[ranks] {} GPUs sum by NCCL", ranks.size()));
  return detail::join_device_ranks(device, ranks.rank(), ranks.size(), ids.front(), seconds);
}

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

/// Begins MPI, unless another library has. MPI that began here ends with the process.
void begin() { static const Session session; }

constexpr std::size_t kLeastRingSize = 4096;  // least elements per rank: below, messages cost more than bytes

constexpr std::int64_t kGathered = std::int64_t{1} << 30;  // bytes of all ranks per call

constexpr auto kLarger = [](std::int64_t a, std::int64_t b) { return std::max(a, b); };
constexpr auto kSum = [](auto a, auto b) { return a + b; };

class MpiRanks final : public Communicator {
 public:
  explicit MpiRanks(Waiting waiting)
      : waiting_(std::move(waiting)), ranks_(mpi_.group(&rank_, &size_)), any_thread_(mpi_.any_thread()) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] bool any_thread() const noexcept override { return any_thread_; }
  void max(std::span<std::int64_t> values) override { reduce(values, Reduce::i64_max, kLarger); }
  void sum(std::span<std::int64_t> values) override { reduce(values, Reduce::i64_sum, kSum); }
  void sum(std::span<float> values) override { reduce(values, Reduce::f32_sum, kSum); }
  void sum(std::span<bfloat16> values) override { reduce(values, Reduce::bf16_sum, kSumOfBf16); }
  [[nodiscard]] std::int64_t bytes() const noexcept override { return bytes_; }
  void sum_where_it_lies(Tensor& values) override {
    auto* gpus = values.device().is_cuda() ? device_ranks(values.device()) : nullptr;
    if (gpus == nullptr) return Communicator::sum_where_it_lies(values);
    gpus->sum(values);
    bytes_ += values.nbytes();
  }
  [[nodiscard]] bool speaks_for_all() override { return waiting_.roll_call().is_first(); }

  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override {
    const auto own = static_cast<std::int64_t>(text.size());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(size_));
    // Texts have different lengths: sizes first.
    wait(mpi_.gather_sizes(ranks_, &own, sizes.data()));
    std::vector<std::string> out(sizes.size());
    const std::int64_t piece = kGathered / size_;  // MPI counts in ints
    // At least one piece, so that all ranks make the same calls for empty texts.
    for (std::int64_t begin = 0; begin == 0 || begin < *std::ranges::max_element(sizes); begin += piece)
      gather_piece(text, sizes, begin, piece, out);
    bytes_ += own;
    return out;
  }

 private:
  void wait(Request request) const { waiting_.until_done(request, rank_); }

  detail::DeviceRanks* device_ranks(Device device) {
    // All ranks reach the first sum on a GPU together, so that they can join there.
    if (!std::exchange(tried_gpus_, true)) gpus_ = join_gpus(*this, device, waiting_.seconds());
    return gpus_.get();
  }

  /// Gathers the bytes [begin, begin + piece) of each text.
  void gather_piece(const std::string& text, const std::vector<std::int64_t>& sizes, std::int64_t begin,
                    std::int64_t piece, std::vector<std::string>& out) {
    std::vector<int> lengths, begins(sizes.size());
    for (const auto size : sizes)
      lengths.push_back(static_cast<int>(std::clamp<std::int64_t>(size - begin, 0, piece)));
    std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
    std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
    const auto own = static_cast<std::size_t>(rank_);
    // Ranks with shorter texts take part in the later pieces with 0 bytes.
    const char* from = lengths[own] > 0 ? text.data() + begin : nullptr;
    wait(mpi_.gather(ranks_, from, lengths[own], all.data(), lengths.data(), begins.data()));
    for (std::size_t i = 0; i < lengths.size(); ++i)
      out[i].append(all, static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i]));
  }

  /// Uses a ring for large arrays, and MPI's own reduction for small ones.
  template <class T, class Combine>
  void reduce(std::span<T> values, Reduce how, const Combine& combine) {
    if (values.size() >= kLeastRingSize * static_cast<std::size_t>(size_)) {
      bytes_ += combine_in_ring({ranks_, rank_, size_, waiting_}, values, combine);
      return;
    }
    wait(mpi_.reduce(ranks_, values.data(), static_cast<int>(values.size()), how));
    bytes_ += static_cast<std::int64_t>(values.size_bytes());
  }

  const Functions& mpi_ = functions();
  Waiting waiting_;
  int rank_ = 0, size_ = 1;
  Group ranks_;
  bool any_thread_;
  std::int64_t bytes_ = 0;
  bool tried_gpus_ = false;
  std::unique_ptr<detail::DeviceRanks> gpus_;
};

}  // namespace

}  // namespace mpi

bool has_mpi() noexcept { return true; }

std::string mpi_library() {
  std::array<char, 256> name{};
  mpi::functions().version(name.data(), static_cast<int>(name.size()));
  const std::string text(name.data());
  // The version text of some MPIs has several lines.
  return text.substr(0, text.find_first_of(",\n"));
}

void abort_ranks(int status) {
  try {
    if (launched().ranks > 1) mpi::functions().abort(status);
  } catch (const BackendError&) {  // MPI is not loaded
  }
  std::_Exit(status);
}

std::shared_ptr<Communicator> started_ranks(double seconds) {
  const int started = launched().ranks;
  if (started <= 1) return one_rank();
  mpi::begin();
  // One roll call for all communicators of the process: it answers the others in every wait.
  static const auto roll_call = std::make_shared<const detail::RollCall>();
  auto out = std::make_shared<mpi::MpiRanks>(mpi::Waiting(seconds, roll_call));
  FQ_CHECK(out->size() == started, "ranks",
           "{} processes were started, and this one finds {}: it was built with {}; use the mpiexec of "
           "this MPI, or unset the variables of another launcher",
           started, out->size(), mpi_library());
  return out;
}

}  // namespace fq
