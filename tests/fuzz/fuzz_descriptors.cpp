/// fuzz_descriptors [COUNT] [SEED] [FIRST]: makes COUNT random descriptors, each with a random input of a
/// random function, valid and invalid, and calls functions with them: all functions of golden files, from
/// cases of those files with tensors and parameters changed; descriptors and quantizers are written and read
/// again. Invalid input must be rejected by ArgumentError or NumericError; accepted descriptors are written
/// and read without an error. Runs with equal seeds are equal: a failure at i is repeated by COUNT 1, the
/// seed, and FIRST i. At least kManyRuns runs with too few accepted inputs test nothing: this is a failure.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "functions.h"
#include "random.h"

namespace fq::fuzz {
namespace {

constexpr std::int64_t kLargest = 2000;  // elements of a case that is used as a start
constexpr std::int64_t kManyRuns = 100;  // at least one in kLeastShare runs must be accepted
constexpr std::int64_t kLeastShare = 20;

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

/// False where the caller or the numbers were refused.
template <class Call>
bool accepted(Call&& call) try {
  call();
  return true;
} catch (const ArgumentError&) {
  return false;
} catch (const NumericError&) {
  return false;
}

/// A descriptor that is accepted keeps its fields through a dictionary and JSON.
bool try_descriptor(Random& random) {
  const auto options = random.descriptor();
  std::optional<QuantDescriptor> made;
  if (!accepted([&] { made.emplace(options); })) return false;
  const QuantDescriptor& d = *made;
  must(QuantDescriptor::from_dict(d.dict()) == d, "dict() is another descriptor");
  must(QuantDescriptor::from_json(d.to_json()) == d, "to_json() is another descriptor");
  must(!to_string(d).empty(), "to_string() is empty");
  (void)d.format();
  (void)accepted(
      [&] { (void)d.granularity(static_cast<int>(random.integer(0, 4))).block_shape(random.shape()); });
  return true;
}

/// One that is accepted.
QuantDescriptor valid_descriptor(Random& random) {
  std::optional<QuantDescriptor> made;
  for (int i = 0; i < kManyRuns && !made; ++i) (void)accepted([&] { made.emplace(random.descriptor()); });
  must(made.has_value(), "no descriptor is accepted");
  return *made;
}

/// The descriptor's text with a changed byte is read or rejected; a descriptor that was read is
/// written and read again.
bool try_text(Random& random) {
  std::string text = valid_descriptor(random).to_json();
  const auto at = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(text.size()) - 1));
  const auto digit = text.find_first_of("0123456789", at);
  if (digit != std::string::npos && random.chance(2))
    text[digit] = static_cast<char>('0' + random.integer(0, 9));
  else
    text[at] = static_cast<char>(random.integer(1, 255));
  std::optional<QuantDescriptor> read;
  if (!accepted([&] { read = QuantDescriptor::from_json(text); })) return false;
  must(QuantDescriptor::from_json(read->to_json()) == *read, "a text that was read is written otherwise");
  return true;
}

void make(Random& random, const QuantDescriptor& d, TensorQuantizer& q, const Tensor& x) {
  q.update([&](QuantParams& s) {
    if (random.chance(2)) s.pass_through_bwd = random.chance(2);
    if (random.chance(4)) s.pre_quant_scale = random.tensor(random.shape(), DType::f32);
  });
  if (random.chance(4)) {
    q.set_amax(random.tensor(random.shape(), DType::f32));
  } else if (d.needs_amax() && !d.amax().defined()) {
    q.observer().collect(x);
    q.load_calibrated_amax();
  }
}

Tensor stored_values(const Variable& y) {
  return y.quantized() != nullptr ? y.quantized()->codes : y.tensor();
}

/// One that is saved and loaded gives the same bits.
void must_load(const TensorQuantizer& q, const Variable& input, const Variable& y) {
  StateDict state;
  q.save(state, "q");
  TensorQuantizer other;
  other.load(state, "q");
  must(other.descriptor() == q.descriptor(), "a quantizer is loaded with another descriptor");
  must(bitwise_equal(stored_values(other(input)), stored_values(y)), "a loaded quantizer gives other values");
  (void)accepted([&] { (void)export_amax(other, input.shape()); });
  (void)accepted([&] { (void)other.grid(); });
}

/// A quantizer of it takes a tensor, gives gradients, is saved and loaded, or refuses.
bool try_quantizer(Random& random) {
  const QuantDescriptor d = valid_descriptor(random);
  const Tensor x =
      random.tensor(random.shape(), random.pick(std::vector{DType::f32, DType::f32, DType::f16, DType::f64}));
  const Variable input(x, true);
  std::optional<TensorQuantizer> q;
  Variable y;
  const bool quantizes = accepted([&] {
    make(random, d, q.emplace(d, random.chance(2) ? Arithmetic::reference : Arithmetic::deployed), x);
    y = (*q)(input);
  });
  if (!quantizes) return false;
  must_load(*q, input, y);
  return accepted([&] {
    if (y.requires_grad())
      y.backward(Tensor::full(y.shape(), 1.0, y.quantized() != nullptr ? DType::f32 : y.tensor().dtype()));
    (void)q->weight(input).tensor();
  });
}

bool try_function(Random& random, const Start& start, const golden::Functions& functions) {
  const golden::Case c = random.mutated(random.pick(start.cases), start.texts);
  try {
    return accepted([&] { (void)functions.at(c.text("function"))(c); });
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("{} (from {}): {}", c.text("function"), c.name, error.what()));
  }
}

/// How many runs each try has got through.
struct Accepted {
  std::int64_t descriptors = 0, texts = 0, quantizers = 0, functions = 0;

  [[nodiscard]] std::int64_t fewest() const { return std::min({descriptors, texts, quantizers, functions}); }
};

int run(std::int64_t count, std::uint64_t seed, std::int64_t first) {
  const Start start = read_start(FAKEQUANT_SOURCE_DIR "/tests/golden");
  const golden::Functions functions = golden::all_functions();
  Accepted accepted;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (std::getenv("FUZZ_TRACE") != nullptr) fmt::print(stderr, "{}\n", i);
    Random random(seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(i));
    try {
      accepted.descriptors += try_descriptor(random) ? 1 : 0;
      accepted.texts += try_text(random) ? 1 : 0;
      accepted.quantizers += try_quantizer(random) ? 1 : 0;
      accepted.functions += try_function(random, start, functions) ? 1 : 0;
    } catch (const std::exception& error) {
      fmt::print("fuzz: seed {}, {}: {}\n", seed, i, error.what());
      return 1;
    }
  }
  const bool enough = count < kManyRuns || accepted.fewest() * kLeastShare >= count;
  fmt::print(
      "fuzz: {} runs, seed {}: {} descriptors, {} texts and {} quantizers accepted, {} functions answered, "
      "{}\n",
      count, seed, accepted.descriptors, accepted.texts, accepted.quantizers, accepted.functions,
      enough ? "nothing found" : "too few to have tested anything");
  return enough ? 0 : 1;
}

}  // namespace
}  // namespace fq::fuzz

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) {
    return i < argc ? std::atoll(argv[i]) : otherwise;
  };
  return fq::fuzz::run(argument(1, 1000), static_cast<std::uint64_t>(argument(2, 1)), argument(3, 0));
}
