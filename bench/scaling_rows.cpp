#include <memory>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/detail/threads.h"

namespace fq::bench {
namespace {

Side threaded_side(const std::shared_ptr<TrainingStep>& step, int threads) {
  return {[=] {
            detail::set_threads(threads);
            step->run();
          },
          {}};
}

}  // namespace

std::vector<Row> scaling_rows() {
  Row row{"scaling.resnet20.2_threads/1_thread", "ms", Clock::wall, false, {}};
  row.make = [](const Settings&) {
    const auto step =
        std::make_shared<TrainingStep>(make_network("resnet20", Numbers::int8, BatchNorm::live));
    Work work;
    work.ours = threaded_side(step, 2);
    work.theirs = threaded_side(step, 1);
    return work;
  };
  row.own_waiting = true;
  return {row};
}

}  // namespace fq::bench
