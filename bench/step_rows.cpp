#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "fakequant/bench/networks.h"
#include "fakequant/bench/row.h"

namespace fq::bench {
namespace {

std::shared_ptr<TrainingStep> training_step(const std::string& network, Numbers numbers,
                                            BatchNorm batch_norm) {
  if (network == "gpt") return std::make_shared<TrainingStep>(make_gpt(numbers));
  return std::make_shared<TrainingStep>(make_network(network, numbers, batch_norm));
}

Side step_side(const std::shared_ptr<TrainingStep>& step) {
  return {[step] { step->run(); }, {}};
}

std::string trained_badly(TrainingStep& step) {
  step.run();
  const double loss = step.loss().item();
  return std::isfinite(loss) ? "" : fmt::format("the loss of ours is {}", loss);
}

/// A batch norm that is folded away is part of the subject: step.cnn.folded.qat_int8.
std::string row_name(const std::string& network, BatchNorm batch_norm, std::string_view what) {
  return fmt::format("step.{}.{}{}", network, batch_norm == BatchNorm::folded ? "folded." : "", what);
}

Row step_row(const std::string& network, BatchNorm batch_norm, std::string_view what, Numbers ours) {
  Row row{row_name(network, batch_norm, what), "ms", Clock::cpu, true, {}};
  row.make = [=](const Settings&) {
    const auto step = training_step(network, ours, batch_norm);
    Work work;
    work.ours = step_side(step);
    work.check = [step] { return trained_badly(*step); };
    return work;
  };
  return row;
}

/// Two steps of ours.
Row own_row(const std::string& network, BatchNorm batch_norm, std::string_view what, Numbers ours,
            Numbers theirs) {
  Row row = step_row(network, batch_norm, what, ours);
  row.python = false;
  row.make = [=, make = row.make](const Settings& settings) {
    Work work = make(settings);
    work.theirs = step_side(training_step(network, theirs, batch_norm));
    return work;
  };
  return row;
}

void add_rows(std::vector<Row>& rows, const std::string& network, BatchNorm batch_norm) {
  const auto add = [&](std::string_view what, Numbers ours) {
    rows.push_back(step_row(network, batch_norm, what, ours));
  };
  const auto add_own = [&](std::string_view what, Numbers ours, Numbers theirs) {
    rows.push_back(own_row(network, batch_norm, what, ours, theirs));
  };
  add_own("qat_int8/own_fp32", Numbers::int8, Numbers::fp32);
  if (batch_norm == BatchNorm::live && network != "conv4") {
    add_own("qat_nvfp4/own_fp32", Numbers::nvfp4, Numbers::fp32);
    add_own("qat_mxfp8/own_fp32", Numbers::mxfp8, Numbers::fp32);
    add_own("qat_mxfp4/own_fp32", Numbers::mxfp4, Numbers::fp32);
    add_own("qat_int4_blockwise/own_fp32", Numbers::int4_blockwise, Numbers::fp32);
    add_own("qat_int8_learned/qat_int8", Numbers::int8_learned, Numbers::int8);
    add("qat_nvfp4/expert_nvfp4", Numbers::nvfp4);
    add("qat_int4_blockwise/modelopt_qat_int4_blockwise", Numbers::int4_blockwise);
  }
  add("fp32/torch_fp32", Numbers::fp32);
  for (const char* what :
       {"qat_int8/torch_fp32", "qat_int8/torch_bf16", "qat_int8/torch_qat", "qat_int8/modelopt_qat_int8",
        "qat_int8/brevitas_qat", "qat_int8/expert_qat", "qat_int8/fakequant_torch"})
    add(what, Numbers::int8);
  add("qat_e4m3/modelopt_qat_fp8", Numbers::e4m3);
}

/// A transformer; its own weights in 4 bits have peers of their own.
void add_gpt_rows(std::vector<Row>& rows) {
  const auto add = [&](std::string_view what, Numbers ours) {
    rows.push_back(step_row("gpt", BatchNorm::live, what, ours));
  };
  rows.push_back(own_row("gpt", BatchNorm::live, "qat_int8/own_fp32", Numbers::int8, Numbers::fp32));
  add("fp32/torch_fp32", Numbers::fp32);
  for (const char* what : {"qat_int8/torch_fp32", "qat_int8/torch_bf16", "qat_int8/modelopt_qat_int8"})
    add(what, Numbers::int8);
  add("qat_8da4w/torchao_8da4w", Numbers::w8da4);
  add("qat_q4_0/torchao_4w_g32", Numbers::q4_0);
  add("qat_nvfp4/expert_nvfp4", Numbers::nvfp4);
}

}  // namespace

std::vector<Row> step_rows() {
  std::vector<Row> rows;
  for (const BatchNorm batch_norm : {BatchNorm::live, BatchNorm::folded})
    for (const auto& network : network_names())
      if (batch_norm == BatchNorm::live || has_batch_norm(network)) add_rows(rows, network, batch_norm);
  add_gpt_rows(rows);
  return rows;
}

}  // namespace fq::bench
