#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "ffi/caller.h"
#include "tensorflow/api.h"
#include "tensorflow/call.h"

/// The library's operations. Each is registered twice: stateless, which lets TensorFlow start it
/// whenever its inputs are ready (stateful ones of a tf.function run one after another, and two
/// ranks that order them differently would wait for each other for ever), and stateful, which keeps
/// the program's order and runs even if nothing uses the result.
///
/// TensorFlow runs stateless operations on constants early, while it optimizes a graph: on this
/// rank now, on another perhaps never. So they take a ticket from a stateful operation that does
/// not wait for anything.
namespace sirtaki::tf {
namespace {

// ---- Shapes of the results ----

/// A TF_ShapeHandle with an owner.
class ShapeHandle {
 public:
  explicit ShapeHandle(TF_ShapeHandle* handle = TF_NewShapeHandle()) : handle_(handle) {}
  ~ShapeHandle() { TF_DeleteShapeHandle(handle_); }
  ShapeHandle(const ShapeHandle&) = delete;
  ShapeHandle& operator=(const ShapeHandle&) = delete;

  operator TF_ShapeHandle*() const { return handle_; }

 private:
  TF_ShapeHandle* handle_;
};

bool ok(const TF_Status* status) { return TF_GetCode(status) == kOk; }

/// There is a result for each of `N` tensors, but not for the ticket after them.
template <int kTickets>
int tensors_of(TF_ShapeInferenceContext* context) {
  return static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - kTickets;
}

template <int kTickets>
void keep_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  for (int i = 0; i < tensors_of<kTickets>(context) && ok(status); ++i) {
    const ShapeHandle shape;
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (ok(status)) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
}

/// [n, ...] becomes [?, ...]: only all ranks together know how many rows there will be.
void forget_rows(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  const ShapeHandle shape, tail, result;
  const ShapeHandle rows(TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(-1)));
  TF_ShapeInferenceContextGetInput(context, index, shape, status);
  if (ok(status)) TF_ShapeInferenceContextWithRankAtLeast(context, shape, 1, shape, status);
  if (ok(status)) {
    TF_ShapeInferenceContextSubshape(context, shape, 1, INT64_MAX, tail, status);
  }
  if (ok(status)) {
    TF_ShapeInferenceContextConcatenateShapes(context, rows, tail, result, status);
  }
  if (ok(status)) TF_ShapeInferenceContextSetOutput(context, index, result, status);
}

template <int kTickets>
void forget_all_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  for (int i = 0; i < tensors_of<kTickets>(context) && ok(status); ++i) {
    forget_rows(context, i, status);
  }
}

void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  forget_rows(context, 0, status);
  if (!ok(status)) return;
  const ShapeHandle splits;
  TF_ShapeInferenceContextGetInput(context, 1, splits, status);
  if (ok(status)) TF_ShapeInferenceContextSetOutput(context, 1, splits, status);
}

void scalar_shape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const ShapeHandle scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, 0, scalar, status);
}

void no_shapes(TF_ShapeInferenceContext*, TF_Status*) {}

// ---- Kernels ----

int64_t integer(TF_OpKernelConstruction* node, const char* name, TF_Status* status) {
  int64_t value = 0;
  if (ok(status)) TF_OpKernelConstruction_GetAttrInt64(node, name, &value, status);
  return value;
}

/// Attributes of type float have 32 bits, so factors are passed as the bits of a double.
double factor(TF_OpKernelConstruction* node, const char* name, TF_Status* status) {
  return std::bit_cast<double>(integer(node, name, status));
}

std::string text(TF_OpKernelConstruction* node, const char* name, TF_Status* status) {
  int32_t list = 0;
  int32_t total = 0;
  if (ok(status)) TF_OpKernelConstruction_GetAttrSize(node, name, &list, &total, status);
  std::string value(static_cast<size_t>(std::max(0, total)), '\0');
  if (ok(status) && total > 0) {
    TF_OpKernelConstruction_GetAttrString(node, name, value.data(), value.size(), status);
  }
  return value;
}

template <int32_t kKind>
void* create(TF_OpKernelConstruction* node) {
  const Status status;
  auto attributes = std::make_unique<Attributes>();
  attributes->name = text(node, "tensor_name", status);
  sirtaki_request& request = attributes->request;
  request.kind = kKind;
  request.reduce = static_cast<int32_t>(integer(node, "reduce_op", status));
  request.root = static_cast<int32_t>(integer(node, "root_rank", status));
  request.set = static_cast<int32_t>(integer(node, "process_set", status));
  request.codec = static_cast<int32_t>(integer(node, "codec", status));
  request.prescale = factor(node, "prescale_bits", status);
  request.postscale = factor(node, "postscale_bits", status);
  if (!status.ok()) TF_OpKernelConstruction_Failure(node, status);
  return attributes.release();
}

void destroy(void* kernel) { delete static_cast<Attributes*>(kernel); }

/// Whether TensorFlow's callback has the assumed layout: then two of its words point to functions
/// of TensorFlow.
bool is_function(const TF_AsyncOpKernelDoneCallback* callback) {
  const Callback& taken = Callback::at(callback);
  for (const void* word : {taken.manager(), taken.caller()}) {
    Dl_info found{};
    if (dladdr(word, &found) == 0) return false;
    if (std::strstr(found.dli_fname, "tensorflow") == nullptr) return false;
  }
  return true;
}

/// The type is the same for all calls, and the check takes a millisecond.
bool calls_back_as_known(const TF_AsyncOpKernelDoneCallback* callback) {
  static const bool known = is_function(callback);
  return known;
}

template <bool kStateful>
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const auto& attributes = *static_cast<Attributes*>(kernel);
  if (calls_back_as_known(callback)) {
    // The callback is on TensorFlow's stack, and is gone when this returns.
    Call::start(context, attributes, kStateful ? 0 : 1, Callback::at(callback));
  } else {
    const Status status;
    TF_SetStatus(status, kFailedPrecondition,
                 "this version of TensorFlow calls back in another way than sirtaki knows; set "
                 "SIRTAKI_TF_OPS=0 to use its slower operations");
    TF_OpKernelContext_Failure(context, status);
    TF_RunAsyncOpKernelDoneCallback(callback);
  }
}

/// Runs at once, because it needs no other rank.
void give_ticket(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Status status;
  const Tensor ticket(TF_AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof(int32_t), status));
  if (status.ok()) {
    *static_cast<int32_t*>(TF_TensorData(ticket.get())) = 0;
  } else {
    TF_OpKernelContext_Failure(context, status);
  }
  TF_RunAsyncOpKernelDoneCallback(callback);
}

void* create_nothing(TF_OpKernelConstruction*) { return nullptr; }
void destroy_nothing(void*) {}

// ---- Operations ----

constexpr const char* kTypes =
    "T: {bool, uint8, int8, int16, int32, int64, half, bfloat16, float, double, uint16, uint32, "
    "uint64, complex64, complex128}";

constexpr const char* kTicket = "ticket: int32";

using Names = std::initializer_list<const char*>;

struct Operation {
  const char* name;
  Create create;
  InferShapes shapes;          ///< of the stateless one
  InferShapes ordered_shapes;  ///< of the stateful one
  Names types, inputs, outputs;
};

const Names kAnyNumber = {kTypes, "N: int >= 1"};
const Names kTensors = {"tensors: N * T"};
const Names kReduced = {"reduced: N * T"};
const Names kGathered = {"gathered: N * T"};
const Names kReceived = {"received: N * T"};

const Operation kOperations[] = {
    {"SirtakiAllreduce", create<SIRTAKI_ALLREDUCE>, keep_shapes<1>, keep_shapes<0>, kAnyNumber,
     kTensors, kReduced},
    {"SirtakiAllgather", create<SIRTAKI_ALLGATHER>, forget_all_rows<1>, forget_all_rows<0>,
     kAnyNumber, kTensors, kGathered},
    {"SirtakiReducescatter", create<SIRTAKI_REDUCESCATTER>, forget_all_rows<1>, forget_all_rows<0>,
     kAnyNumber, kTensors, kReduced},
    {"SirtakiBroadcast", create<SIRTAKI_BROADCAST>, keep_shapes<1>, keep_shapes<0>, kAnyNumber,
     kTensors, kReceived},
    {"SirtakiAlltoall",
     create<SIRTAKI_ALLTOALL>,
     alltoall_shapes,
     alltoall_shapes,
     {kTypes},
     {"tensor: T", "splits: int32"},
     {"received: T", "received_splits: int32"}},
    {"SirtakiBarrier", create<SIRTAKI_BARRIER>, no_shapes, no_shapes, {}, {}, {}},
    {"SirtakiJoin", create<SIRTAKI_JOIN>, scalar_shape, scalar_shape, {}, {}, {"last_rank: int32"}},
};

void define(const Operation& operation, const std::string& name, bool stateful, TF_Status* status) {
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(name.c_str());
  for (const char* type : operation.types) TF_OpDefinitionBuilderAddAttr(builder, type);
  for (const char* input : operation.inputs) TF_OpDefinitionBuilderAddInput(builder, input);
  if (!stateful) TF_OpDefinitionBuilderAddInput(builder, kTicket);
  for (const char* output : operation.outputs) TF_OpDefinitionBuilderAddOutput(builder, output);
  for (const char* attribute :
       {"tensor_name: string = ''", "reduce_op: int = 1", "root_rank: int = 0",
        "process_set: int = 0", "codec: int = 0", "prescale_bits: int = 4607182418800017408",
        "postscale_bits: int = 4607182418800017408"}) {
    TF_OpDefinitionBuilderAddAttr(builder, attribute);
  }
  // Every call sets it, even with false.
  if (stateful) TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(
      builder, stateful ? operation.ordered_shapes : operation.shapes);
  TF_RegisterOpDefinition(builder, status);  // consumes the builder, even if it fails
}

/// The name in an argument's description.
std::string argument(const char* described) { return {described, std::strcspn(described, ":")}; }

/// Operations take and return host memory, on a GPU device, too.
void add_kernel(const std::string& name, const char* device, Create create, Compute compute,
                Delete destroy, const std::vector<std::string>& arguments, TF_Status* status) {
  TF_KernelBuilder* builder =
      TF_NewAsyncKernelBuilder(name.c_str(), device, create, compute, destroy);
  if (std::strcmp(device, "CPU") != 0) {
    for (const std::string& argument : arguments) {
      TF_KernelBuilder_HostMemory(builder, argument.c_str());
    }
  }
  TF_RegisterKernelBuilder(name.c_str(), builder, status);
}

void add_ticket(TF_Status* status) {
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder("SirtakiTicket");
  TF_OpDefinitionBuilderAddOutput(builder, kTicket);
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, scalar_shape);
  TF_RegisterOpDefinition(builder, status);
  for (const char* device : {"CPU", "GPU"}) {
    if (ok(status)) {
      add_kernel("SirtakiTicket", device, create_nothing, give_ticket, destroy_nothing, {"ticket"},
                 status);
    }
  }
}

void add_operation(const Operation& operation, bool stateful, TF_Status* status) {
  const std::string name = std::string(operation.name) + (stateful ? "Ordered" : "");
  std::vector<std::string> arguments;
  for (const char* described : operation.inputs) arguments.push_back(argument(described));
  for (const char* described : operation.outputs) arguments.push_back(argument(described));
  if (!stateful) arguments.push_back(argument(kTicket));
  define(operation, name, stateful, status);
  for (const char* device : {"CPU", "GPU"}) {
    if (!ok(status)) return;
    add_kernel(name, device, operation.create, stateful ? compute<true> : compute<false>, destroy,
               arguments, status);
  }
}

std::string register_operations() {
  const Status status;
  add_ticket(status);
  for (const Operation& operation : kOperations) {
    for (const bool stateful : {false, true}) {
      if (status.ok()) add_operation(operation, stateful, status);
      if (!status.ok()) return std::string(operation.name) + ": " + status.message();
    }
  }
  return "";
}

/// TensorFlow registers operations while it loads a library; "" if it accepted these.
const std::string problem = [] {
  const std::string missing = find_functions();
  if (!missing.empty()) return "TensorFlow has no " + missing;
  return register_operations();
}();

}  // namespace
}  // namespace sirtaki::tf

/// Passes the engine's interface to the library; returns what is wrong, "" if nothing is.
extern "C" __attribute__((visibility("default"))) const char* sirtaki_tf_connect(
    const sirtaki_table* table) {
  if (!sirtaki::tf::problem.empty()) return sirtaki::tf::problem.c_str();
  const char* problem = sirtaki::problem_of(*table);
  if (*problem == '\0') sirtaki::tf::engine_table = table;
  return problem;
}
