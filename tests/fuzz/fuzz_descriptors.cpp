/// fuzz_descriptors [COUNT] [SEED] [FIRST]: makes COUNT random descriptors, each with a random input of a
/// random function, valid and invalid, and calls what takes them: every function that golden files name, from
/// cases of those files with tensors and parameters changed; descriptors are written and read again. Only
/// fq::Error may be thrown. Runs of one seed are the same, so a failure at i is seen again by COUNT 1, the
/// seed, and FIRST i.

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/tensor_quantizer.h"
#include "functions.h"
#include "random.h"

namespace fq::fuzz {
namespace {

constexpr std::int64_t kLargest = 2000;  // elements of a case that is taken as a start

struct Start {
  std::vector<golden::Case> cases;
  std::map<std::string, std::vector<std::string>> texts;
};

Start read_start(const std::filesystem::path& folder) {
  Start out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h5") continue;
    for (auto& c : golden::read_cases(entry.path().string())) {
      std::int64_t elements = 0;
      for (const auto& [name, input] : c.inputs) elements += input.tensor.numel();
      if (elements > kLargest) continue;
      for (const auto& [name, text] : c.texts) out.texts[name].push_back(text);
      c.outputs.clear();
      out.cases.push_back(std::move(c));
    }
  }
  return out;
}

void must(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// A descriptor that is accepted keeps its fields through a dictionary and JSON.
bool try_descriptor(Random& random) try {
  const QuantDescriptor d(random.descriptor());
  must(QuantDescriptor::from_dict(d.dict()) == d, "dict() is another descriptor");
  must(QuantDescriptor::from_json(d.to_json()) == d, "to_json() is another descriptor");
  (void)to_string(d);
  (void)d.format();
  (void)d.granularity(static_cast<int>(random.integer(0, 4))).block_shape(random.shape());
  return true;
} catch (const Error&) {
  return false;
}

/// Its text with a byte changed is read, or refused.
void try_text(Random& random) try {
  std::string text = QuantDescriptor(random.descriptor()).to_json();
  const auto at = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(text.size()) - 1));
  text[at] = static_cast<char>(random.integer(1, 255));
  (void)QuantDescriptor::from_json(text);
} catch (const Error&) {
}

/// A quantizer of it takes a tensor, gives gradients, is saved and loaded, or refuses.
void try_quantizer(Random& random) try {
  const QuantDescriptor d(random.descriptor());
  const Tensor x =
      random.tensor(random.shape(), random.pick(std::vector{DType::f32, DType::f32, DType::f16, DType::f64}));
  TensorQuantizer q(d, random.one_in(2) ? Arithmetic::reference : Arithmetic::deployed);
  if (random.one_in(2)) q.set_pass_through_bwd(random.one_in(2));
  if (random.one_in(4)) q.set_pre_quant_scale(random.tensor(random.shape(), DType::f32));
  if (random.one_in(4)) {
    q.set_amax(random.tensor(random.shape(), DType::f32));
  } else if (d.needs_amax() && !d.amax().defined()) {
    q.collect(x);
    q.load_calibrated_amax();
  }
  const Variable input(x, true);
  const Variable y = q(input);
  if (y.requires_grad())
    y.backward(Tensor::full(y.shape(), 1.0, y.quantized() != nullptr ? DType::f32 : y.tensor().dtype()));
  (void)q.weight(input).tensor();
  StateDict state;
  q.save(state, "q");
  TensorQuantizer other;
  other.load(state, "q");
  (void)other.export_amax(x.shape());
  (void)other.spec();
} catch (const Error&) {
}

bool try_function(Random& random, const Start& start, const golden::Functions& functions) {
  const golden::Case c = random.mutated(random.pick(start.cases), start.texts);
  try {
    (void)functions.at(c.text("function"))(c);
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("{} (from {}): {}", c.text("function"), c.name, error.what()));
  }
}

int run(std::int64_t count, std::uint64_t seed, std::int64_t first) {
  const Start start = read_start(FAKEQUANT_SOURCE_DIR "/tests/golden");
  const golden::Functions functions = golden::all_functions();
  std::int64_t descriptors = 0, answered = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (std::getenv("FUZZ_TRACE") != nullptr) fmt::print(stderr, "{}\n", i);
    Random random(seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(i));
    try {
      descriptors += try_descriptor(random) ? 1 : 0;
      try_text(random);
      try_quantizer(random);
      answered += try_function(random, start, functions) ? 1 : 0;
    } catch (const std::exception& error) {
      fmt::print("fuzz: seed {}, {}: {}\n", seed, i, error.what());
      return 1;
    }
  }
  fmt::print("fuzz: {} runs, seed {}: {} descriptors accepted, {} functions answered, nothing found\n", count,
             seed, descriptors, answered);
  return 0;
}

}  // namespace
}  // namespace fq::fuzz

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) {
    return i < argc ? std::atoll(argv[i]) : otherwise;
  };
  return fq::fuzz::run(argument(1, 1000), static_cast<std::uint64_t>(argument(2, 1)), argument(3, 0));
}
