#include <filesystem>
#include <memory>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/trainer.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kBatches = 30, kBatchSize = 64;

/// Images of cnn's size as bytes, with labels, in a data set file.
std::string write_images(const std::filesystem::path& folder) {
  const std::int64_t count = kBatches * kBatchSize;
  Tensor x = Tensor::empty({count, 1, 28, 28}, DType::u8), y = Tensor::empty({count}, DType::i64);
  auto* pixels = x.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < x.numel(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7919 >> 3);
  auto* labels = y.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) labels[i] = i % 10;
  StateDict images;
  images.set("train/x", x);
  images.set("train/y", y);
  const std::string path = folder / "images.h5";
  save_state(path, images, "images");
  return path;
}

/// Trains one epoch and returns the share of the time spent waiting for data, 0 to 1.
double loader_share(const std::shared_ptr<Module>& model, const std::string& path) {
  const auto data = std::make_shared<Hdf5Dataset>(path);
  const auto loader = std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = kBatchSize});
  TrainerOptions options;
  options.epochs = 1;
  options.optimizer = {.kind = "sgd", .learning_rate = 1e-5};
  double share = 0;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&share](const StepReport& report) { share = report.loader_share; };
  Trainer(model, loader, options, nullptr, callbacks).fit();
  return share;
}

}  // namespace

std::vector<Row> loader_rows() {
  Row row{"loader.share/step", "of a step", Clock::wall, false, {}};
  row.make = [](const Settings& settings) {
    const auto model = make_network("cnn", Numbers::int8, BatchNorm::live).model;
    const auto path = write_images(settings.exchange);
    Work work;
    work.ours.value = [=] { return loader_share(model, path); };
    work.theirs.value = [] { return 1.0; };
    return work;
  };
  return {row};
}

}  // namespace fq::bench
