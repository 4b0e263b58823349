// The trained networks of these tests: digits_cnn.h5 and digits_mlp.h5 in tests/data.

#include "train/ptq/networks.h"

#include <gtest/gtest.h>

#include "fakequant/train/trainer.h"

namespace fq {
namespace {

using namespace test;

TEST(PtqNetworks, AreTrained) {
  EXPECT_GT(accuracy(*trained("cnn")), 0.95);
  EXPECT_GT(accuracy(*trained("mlp")), 0.9);
}

/// Writes the files anew: --gtest_also_run_disabled_tests --gtest_filter='*TrainThem'
TEST(PtqNetworks, DISABLED_TrainThem) {
  for (const std::string name : {"cnn", "mlp"}) {
    auto model = build_model(ModelSpec::parse(model_text(name)), {1, 8, 8}, 10);
    auto data = std::make_shared<DataLoader>(
        digits("train"), LoaderOptions{.batch_size = 64, .seed = 1, .augment = {.shift = 0.5}});
    Trainer trainer(model, data,
                    {.epochs = 30, .optimizer = {.learning_rate = 4e-3}, .schedule = {.kind = "one_cycle"}});
    (void)trainer.fit();
    if (name == "cnn") (void)fold_batch_norm(*model, digit_shape());
    StateDict state;
    for (const auto& [path, parameter] : model->named_parameters()) state.set(path, parameter.tensor());
    save_state(weights_file(name), state, "weights");
  }
}

}  // namespace
}  // namespace fq
