#include "fakequant/train/loop/checkpoint.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "train/loop_run.h"

namespace fq::checkpoint_test {
namespace {

using test::Folder;
using test::Plan;

TEST(Checkpoint, StoppingKeepsTheLastCheckpointComplete) {
  const Folder folder;
  std::atomic<bool> stop = true;
  Plan run;
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.execution.stop = &stop;
  const auto result = run.make()->fit();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 0);
  EXPECT_TRUE(has_training_state(load_checkpoint(run.options.checkpoint.out)));
}

TEST(Checkpoint, IsSavedByEpochByStepAndForTheBest) {
  const Folder folder;
  Plan run;
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.checkpoint.save_every = 4;
  std::vector<std::string> written;
  run.callbacks.on_checkpoint = [&](const std::string& path) { written.push_back(path); };
  run.options.epochs = 1;
  run.make()->fit();
  EXPECT_EQ(written, (std::vector<std::string>{folder.file("run.h5"), folder.file("run.best.h5"),
                                               folder.file("run.h5")}));
  EXPECT_EQ(state_file_info(folder.file("run.best.h5")).kind, "checkpoint");
}

TEST(Checkpoint, ContainsTheEvaluationParameters) {
  const Folder folder;
  Plan run;
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.checkpoint.model = R"({"model": "small"})";
  const auto result = run.make()->fit();
  const StateDict state = load_checkpoint(run.options.checkpoint.out);
  EXPECT_EQ(state.attribute("model").dump(), R"({"model":"small"})");
  const auto model = test::small_network(false);
  load_model_state(*model, state, run.options.checkpoint.out);
  DataLoader loader(test::quadrants(40, 2), test::sequential_options());
  EXPECT_EQ(evaluate(*model, loader).loss, result.validation->loss);
}

TEST(Checkpoint, RestoresTheBestEpoch) {
  const Folder folder;
  for (const std::string& out : {std::string(), folder.file("run.h5")}) {
    Plan run;
    run.options.checkpoint.out = out;
    run.options.validation.restore_best = true;
    run.options.update.average_decay = 0;
    run.options.schedule.kind = "constant";
    run.options.epochs = 4;
    run.options.optimizer = {.kind = "sgd", .learning_rate = 0.2};
    double best_loss = 0;
    run.callbacks.on_epoch = [&](const EpochReport& report) {
      if (report.best) best_loss = report.validation->loss;
    };
    auto model = test::small_network(false);
    DataLoader loader(test::quadrants(40, 2), test::sequential_options());
    Trainer trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), run.loader), run.options,
                    std::make_shared<DataLoader>(test::quadrants(40, 2), test::sequential_options()),
                    run.callbacks);
    trainer.fit();
    EXPECT_EQ(evaluate(*model, loader).loss, best_loss);
  }
}

TEST(Checkpoint, SavesQuantizersWithTheModel) {
  const Folder folder;
  const auto model = test::small_network(true), other = test::small_network(true);
  visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(1.5)); });
  const std::string path = folder.file("model.h5");
  save_checkpoint(path, model_state(*model, nullptr));
  load_model_state(*other, load_checkpoint(path), path);
  DataLoader loader(test::quadrants(40, 2), test::sequential_options());
  EXPECT_TRUE(bitwise_equal(predict(*model, loader), predict(*other, loader)));
}

std::string error_text(Module& model, const StateDict& state) {
  try {
    load_model_state(model, state, "some.h5");
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), "some.h5");
    return error.what();
  }
  return "not refused";
}

TEST(Checkpoint, NamesTheFirstDifferenceOfAnotherModel) {
  const auto model = test::small_network(false);
  const StateDict before = model_state(*model, nullptr);
  Sequential other;
  other.add("conv", std::make_shared<Conv2d>(1, 4, Shape{3}, ops::ConvOptions{}, false));
  EXPECT_EQ(error_text(*model, model_state(other, nullptr)),
            "[load_checkpoint] some.h5 is a checkpoint of another model: parameters/conv.weight is f32 [4, "
            "1, 3, 3] "
            "there, f32 [6, 1, 3, 3] here");
  other.replace("conv", std::make_shared<Conv2d>(1, 6, Shape{3}, ops::ConvOptions{}, false));
  EXPECT_EQ(error_text(*model, model_state(other, nullptr)),
            "[load_checkpoint] some.h5 is a checkpoint of another model: parameters/bn.weight is not in it");
  EXPECT_EQ(error_text(other, before),
            "[load_checkpoint] some.h5 is a checkpoint of another model: parameters/bn.weight is not in this "
            "model");
  const auto quantized = test::small_network(true);
  EXPECT_NE(error_text(*quantized, before).find("quantizers/"), std::string::npos);
  EXPECT_NE(error_text(*model, model_state(*quantized, nullptr)).find("is not in this model"),
            std::string::npos);
}

TEST(Checkpoint, ResumeRejectsMismatchedSettings) {
  const Folder folder;
  Plan run;
  run.options.epochs = 1;
  const auto trainer = run.make();
  trainer->fit();
  const StateDict state = trainer->state_dict();
  EXPECT_THROW(run.make()->resume(model_state(*test::small_network(false), nullptr), "model.h5"), FileError);
  const auto expect_error = [&](auto change) {
    Plan other = run;
    change(other);
    EXPECT_THROW(other.make()->resume(state, "some.h5"), ArgumentError);
  };
  expect_error([](Plan& r) { r.options.optimizer.kind = "sgd"; });
  expect_error([](Plan& r) { r.options.update.average_decay = 0; });
  expect_error([](Plan& r) { r.loader.batch_size = 8; });
  StateDict broken = state;
  broken.set_attribute("progress/step", "seven");
  EXPECT_THROW(run.make()->resume(broken, "some.h5"), FileError);
}

TEST(Checkpoint, RejectsDamagedFiles) {
  const Folder folder;
  const std::string path = folder.file("model.h5");
  EXPECT_THROW((void)load_checkpoint(path), FileError);
  save_checkpoint(path, model_state(*test::small_network(false), nullptr));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-900, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-900, std::ios::end);
    file.put(byte);
  }
  EXPECT_THROW((void)load_checkpoint(path), FileError);
}

TEST(Checkpoint, DerivesTheBestPath) {
  EXPECT_EQ(best_checkpoint_path("a/run.h5"), "a/run.best.h5");
  EXPECT_EQ(best_checkpoint_path("run"), "run.best.h5");
  EXPECT_EQ(best_checkpoint_path("a/checkpoints/last.h5"), "a/checkpoints/best.h5");
  EXPECT_EQ(best_checkpoint_path("last.h5"), "last.best.h5");
  EXPECT_EQ(best_checkpoint_path("a.b/run.1"), "a.b/run.1.best.h5");
  EXPECT_EQ(best_checkpoint_path("run.2.h5"), "run.2.best.h5");
  EXPECT_EQ(sibling_path("run.1", ".profile.json"), "run.1.profile.json");
  EXPECT_TRUE(allows_sibling_files("not there"));
  EXPECT_FALSE(allows_sibling_files("/dev/null"));
}

}  // namespace
}  // namespace fq::checkpoint_test
