#include <algorithm>
#include <ctime>
#include <memory>
#include <string_view>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/row.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kElements = 16 << 20;  // 64 MiB: beyond the caches
constexpr int kBins = 2048;

Row calib_row(std::string_view what, std::string_view peer, const char* unit, bool python) {
  Row row{std::string("calib.").append(what).append("/").append(peer), unit, Clock::cpu, python, {}};
  return row;
}

Histogram make_histogram(const Tensor& x, int bins) {
  HistogramCalibrator calibrator("percentile", {.num_bins = bins});
  calibrator.collect(x);
  return calibrator.histogram();
}

Work per_element(std::function<void()> ours) {
  Work work;
  work.ours.run = std::move(ours);
  work.units_per_second = 1e9 / static_cast<double>(kElements);
  return work;
}

/// Reads every byte once; the sum is kept so that it is not left out.
void read_all(const Tensor& x, std::uint64_t& sum) {
  const auto* words = static_cast<const std::uint64_t*>(x.raw());
  std::uint64_t lanes[16] = {};
  for (std::int64_t i = 0; i < x.nbytes() / 8; i += 16)
    for (std::int64_t k = 0; k < 16; ++k) lanes[k] ^= words[i + k];
  for (const std::uint64_t lane : lanes) sum ^= lane;
}

Row read_row(std::string_view what, void (*collect)(const Tensor&)) {
  Row row = calib_row(what, "read", "ns/element", false);
  row.make = [collect](const Settings&) {
    const Tensor x = bell({kElements}, 1);
    Work work = per_element([x, collect] { collect(x); });
    work.theirs.run = [x, sum = std::uint64_t{0}]() mutable { read_all(x, sum); };
    return work;
  };
  return row;
}

void collect_histogram(const Tensor& x) { static_cast<void>(make_histogram(x, kBins)); }
void collect_max(const Tensor& x) { MaxCalibrator().collect(x); }

/// The peer leaves its counts as f32.
std::string check_counts(const Histogram& ours, const Settings& settings) {
  std::vector<float> counts;
  for (const std::int64_t count : ours.counts) counts.push_back(static_cast<float>(count));
  const Shape shape{static_cast<std::int64_t>(counts.size())};
  return first_difference("counts", Tensor::from(counts, shape),
                          read_array(settings.exchange, "counts", shape));
}

Row histogram_collect(std::string_view peer) {
  Row row = calib_row("histogram_collect", peer, "ns/element", true);
  row.make = [](const Settings& settings) {
    const Tensor x = bell({kElements}, 1);
    write_array(settings.exchange, "x", x);
    Work work = per_element([x] { collect_histogram(x); });
    work.check = [x, settings] { return check_counts(make_histogram(x, kBins), settings); };
    return work;
  };
  return row;
}

using Search = float (*)(const Histogram&);
float entropy(const Histogram& h) { return amax_by_entropy(h, 8, false, 1, 128); }
float mse(const Histogram& h) { return amax_by_mse(h, 8, false, 1, 128); }

/// Writes the histogram; the peer leaves its amax.
Work search_work(const Settings& settings, int bins, Search search) {
  const auto h = std::make_shared<Histogram>(make_histogram(bell({kElements}, 1), bins));
  write_array(settings.exchange, "counts", Tensor::from(h->counts, {bins}));
  write_array(settings.exchange, "edges", Tensor::from(h->edges, {bins + 1}));
  Work work;
  work.ours.run = [h, search] { static_cast<void>(search(*h)); };
  work.check = [h, search, settings] {
    return first_difference("amax", Tensor::scalar(search(*h)), read_array(settings.exchange, "amax", {}));
  };
  return work;
}

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// The reference takes seconds: it is timed by itself, few times, and so are we.
Row entropy_search(int bins) {
  Row row = calib_row("entropy_" + std::to_string(bins), "modelopt", "ms", true);
  row.make = [bins](const Settings& settings) {
    Work work = search_work(settings, bins, entropy);
    work.ours.value = [run = work.ours.run] {
      constexpr int calls = 8;
      const double start = processor_ms();
      for (int i = 0; i < calls; ++i) run();
      return (processor_ms() - start) / calls;
    };
    work.units_per_second = 1;
    return work;
  };
  return row;
}

Row mse_search() {
  Row row = calib_row("mse_2048", "numpy", "ms", true);
  row.make = [](const Settings& settings) { return search_work(settings, kBins, mse); };
  return row;
}

}  // namespace

std::vector<Row> calib_rows() {
  return {
      histogram_collect("modelopt"),
      histogram_collect("torch_histc"),
      read_row("histogram_collect", collect_histogram),
      read_row("max", collect_max),
      entropy_search(2048),
      entropy_search(8192),
      mse_search(),
  };
}

}  // namespace fq::bench
