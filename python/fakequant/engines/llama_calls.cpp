// Functions of llama.cpp that fakequant.engines.gguf calls through ctypes, on float and int32 arrays: the
// logits of tokens, with every product of the graph reported, one product alone in either kind of buffer, and
// a copy of a file by llama.cpp's own quantizer. fakequant.engines.install builds them as a library in the
// folder of libllama.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

namespace {

std::string last_message;

/// Callback for a product: name of the weight, x [rows, columns], y [rows, channels].
using Visit = void (*)(const char* weight, const float* x, const float* y, int64_t columns, int64_t channels,
                       int64_t rows);

struct Net {
  llama_model* model = nullptr;
  llama_context* context = nullptr;
  Visit visit = nullptr;
};

bool is_product(const ggml_tensor* t) {
  return t->op == GGML_OP_MUL_MAT && t->src[0]->op == GGML_OP_NONE && t->src[1]->type == GGML_TYPE_F32 &&
         std::strstr(t->src[0]->name, ".weight") != nullptr && ggml_is_contiguous(t->src[1]);
}

bool report_product(ggml_tensor* t, bool ask, void* user) {
  const Visit visit = static_cast<Net*>(user)->visit;
  if (visit == nullptr || !is_product(t)) return !ask;
  if (!ask)
    visit(t->src[0]->name, static_cast<const float*>(t->src[1]->data), static_cast<const float*>(t->data),
          t->src[1]->ne[0], t->ne[0], ggml_nrows(t));
  return true;
}

ggml_backend_buffer_type_t repack_type() {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  for (ggml_backend_buffer_type_t* t = extra != nullptr ? extra(device) : nullptr;
       t != nullptr && *t != nullptr; ++t)
    if (std::strcmp(ggml_backend_buft_name(*t), "CPU_REPACK") == 0) return *t;
  return nullptr;
}

/// Contexts, buffers and backend of one product.
struct Product {
  ggml_context *weights = nullptr, *rest = nullptr;
  ggml_backend_buffer_t of_weights = nullptr, of_rest = nullptr;
  ggml_backend_t cpu = ggml_backend_cpu_init();
  ~Product() {
    for (ggml_backend_buffer_t buffer : {of_weights, of_rest})
      if (buffer != nullptr) ggml_backend_buffer_free(buffer);
    for (ggml_context* context : {weights, rest})
      if (context != nullptr) ggml_free(context);
    ggml_backend_free(cpu);
  }
};

}  // namespace

extern "C" {

const char* fakequant_version() { return ggml_version(); }
const char* fakequant_message() { return last_message.c_str(); }

/// Opens a file. Returns null, with a message, if the file cannot be loaded. Flash attention is off. Keys and
/// values are in f16, the default of llama.cpp, or in f32.
void* fakequant_open(const char* path, int context, int threads, int cache_f32) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_CONT) last_message = text;
      },
      nullptr);
  llama_backend_init();
  auto* net = new Net;
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  net->model = llama_model_load_from_file(path, of_model);
  if (net->model == nullptr) return nullptr;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(context);
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  if (cache_f32 != 0) params.type_k = params.type_v = GGML_TYPE_F32;
  params.cb_eval = report_product;
  params.cb_eval_user_data = net;
  net->context = llama_init_from_model(net->model, params);
  return net->context != nullptr ? net : nullptr;
}

int fakequant_vocabulary(void* net) {
  return llama_vocab_n_tokens(llama_model_get_vocab(static_cast<Net*>(net)->model));
}

int fakequant_heads(void* net) { return llama_model_n_head(static_cast<Net*>(net)->model); }
int fakequant_kv_heads(void* net) { return llama_model_n_head_kv(static_cast<Net*>(net)->model); }

/// Returns the architecture of the network: "gpt2", "llama", ..
const char* fakequant_architecture(void* net) {
  static std::string architecture;
  char text[64] = "";
  llama_model_meta_val_str(static_cast<Net*>(net)->model, "general.architecture", text, sizeof text);
  return (architecture = text).c_str();
}

/// Writes a copy of a file, all matrices as `type` ("F32", "F16", "Q4_0" or "Q8_0"), like llama-quantize with
/// --allow-requantize --pure. Returns 0 if it succeeded.
int fakequant_quantize(const char* from, const char* to, const char* type) {
  const std::pair<const char*, llama_ftype> types[] = {{"F32", LLAMA_FTYPE_ALL_F32},
                                                       {"F16", LLAMA_FTYPE_MOSTLY_F16},
                                                       {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
                                                       {"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0}};
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = 1;
  params.allow_requantize = params.pure = true;
  for (const auto& [name, number] : types)
    if (std::strcmp(name, type) == 0) {
      params.ftype = number;
      return static_cast<int>(llama_model_quantize(from, to, &params));
    }
  return -1;
}

/// Computes the logits [count, vocabulary] of tokens, which are a separate text. `visit` may be null. Returns
/// 0 if it succeeded.
int fakequant_logits(void* opened, const int32_t* tokens, int count, float* logits, Visit visit) {
  auto* net = static_cast<Net*>(opened);
  net->visit = visit;
  llama_memory_clear(llama_get_memory(net->context), true);
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  const int status = llama_decode(net->context, batch);
  llama_batch_free(batch);
  net->visit = nullptr;
  const auto bytes = sizeof(float) * static_cast<size_t>(fakequant_vocabulary(opened));
  for (int i = 0; status == 0 && i < count; ++i)
    std::memcpy(logits + i * static_cast<int64_t>(bytes / sizeof(float)),
                llama_get_logits_ith(net->context, i), bytes);
  return status;
}

/// Returns the type of a tensor of the file, "F16" for example; empty if the file does not have the tensor.
const char* fakequant_type(const char* path, const char* name) {
  gguf_context* file = gguf_init_from_file(path, {true, nullptr});
  const int64_t at = file != nullptr ? gguf_find_tensor(file, name) : -1;
  const char* type = at >= 0 ? ggml_type_name(gguf_get_tensor_type(file, at)) : "";
  if (file != nullptr) gguf_free(file);
  return type;
}

/// Computes y [rows, channels] = x [rows, columns] times a weight of the file, in a repacked or a plain
/// buffer. Returns 0 if it succeeded, 1 if the file does not have the weight, 2 if the buffer cannot hold the
/// weight.
int fakequant_product(const char* path, const char* weight, int repack, const float* x, int64_t rows,
                      float* y) {
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_context* stored = nullptr;
  gguf_context* file = gguf_init_from_file(path, {false, &stored});
  const ggml_tensor* w = file != nullptr ? ggml_get_tensor(stored, weight) : nullptr;
  int status = w == nullptr ? 1 : 0;
  const ggml_backend_buffer_type_t type = repack != 0 ? repack_type() : ggml_backend_cpu_buffer_type();
  if (status == 0 && (type == nullptr || (repack != 0 && (w->type != GGML_TYPE_Q4_0 || w->ne[1] % 8 != 0))))
    status = 2;
  if (status == 0) {
    Product p;
    p.weights = ggml_init({ggml_tensor_overhead() * 4, nullptr, true});
    p.rest = ggml_init({ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true});
    ggml_tensor* packed = ggml_new_tensor_2d(p.weights, w->type, w->ne[0], w->ne[1]);
    p.of_weights = ggml_backend_alloc_ctx_tensors_from_buft(p.weights, type);
    ggml_tensor* input = ggml_new_tensor_2d(p.rest, GGML_TYPE_F32, w->ne[0], rows);
    ggml_tensor* output = ggml_mul_mat(p.rest, packed, input);
    ggml_cgraph* graph = ggml_new_graph(p.rest);
    ggml_build_forward_expand(graph, output);
    p.of_rest = ggml_backend_alloc_ctx_tensors(p.rest, p.cpu);
    ggml_backend_tensor_set(packed, w->data, 0, ggml_nbytes(w));
    ggml_backend_tensor_set(input, x, 0, ggml_nbytes(input));
    ggml_backend_graph_compute(p.cpu, graph);
    ggml_backend_tensor_get(output, y, 0, ggml_nbytes(output));
  }
  if (file != nullptr) gguf_free(file);
  if (stored != nullptr) ggml_free(stored);
  return status;
}

}  // extern "C"
