#include <memory>

#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kImages = 1024;

std::shared_ptr<DataLoader> image_loader(const Network& network) {
  Shape shape = network.x.shape();
  const std::int64_t batch = std::exchange(shape[0], kImages);
  return std::make_shared<DataLoader>(std::make_shared<TensorDataset>(bell(shape, 2)),
                                      LoaderOptions{.batch_size = batch, .shuffle = false});
}

void forward_all(Module& model, DataLoader& data) {
  const NoGrad no_grad;
  data.start_epoch(0);
  while (auto batch = data.next()) (void)model(Variable(batch->x)).tensor();
}

std::string uncalibrated(Module& model, const std::string& method) {
  const auto names = uncalibrated_quantizers(model);
  if (!names.empty()) return fmt::format("'{}' has no range", names.front());
  const auto& input = dynamic_cast<TensorQuantizer&>(model.at("fc.input_quantizer"));
  const std::string& used = input.descriptor().calib_method();
  return used == method ? "" : fmt::format("calibrated by {}", used);
}

/// Everything from images to ranges, against the float network alone on the same images.
Row forward_row(const std::string& method) {
  Row row{fmt::format("calib.resnet20_{}.{}/forward", kImages, method), "ms", Clock::cpu, false, {}};
  row.make = [method](const Settings&) {
    const auto ours = std::make_shared<Network>(make_network("resnet20", Numbers::int8, BatchNorm::folded));
    const auto plain = std::make_shared<Network>(make_network("resnet20", Numbers::fp32, BatchNorm::folded));
    const auto data = image_loader(*ours), same = image_loader(*plain);
    plain->model->eval();
    Work work;
    work.ours.run = [=] { calibrate(*ours->model, *data, {.method = method}); };
    work.theirs.run = [=] { forward_all(*plain->model, *same); };
    work.check = [=] {
      calibrate(*ours->model, *data, {.method = method});
      return uncalibrated(*ours->model, method);
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> calibration_rows() {
  std::vector<Row> rows;
  for (const char* method : {"max", "percentile", "entropy"}) rows.push_back(forward_row(method));
  return rows;
}

}  // namespace fq::bench
