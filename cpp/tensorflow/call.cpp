#include "tensorflow/call.h"

#include <algorithm>
#include <utility>

#include "ffi/caller.h"

namespace sirtaki::tf {
namespace {

int32_t dtype_of(int type) {
  static constexpr std::pair<int, int32_t> kTypes[] = {
      {kBool, SIRTAKI_BOOL},  {kUint8, SIRTAKI_U8},      {kInt8, SIRTAKI_I8},
      {kInt16, SIRTAKI_I16},  {kInt32, SIRTAKI_I32},     {kInt64, SIRTAKI_I64},
      {kHalf, SIRTAKI_F16},   {kBfloat16, SIRTAKI_BF16}, {kFloat, SIRTAKI_F32},
      {kDouble, SIRTAKI_F64}, {kUint16, SIRTAKI_U16},    {kUint32, SIRTAKI_U32},
      {kUint64, SIRTAKI_U64}, {kComplex64, SIRTAKI_C64}, {kComplex128, SIRTAKI_C128}};
  return dtype_in(kTypes, type);
}

/// A mismatch gets the code by which Horovod's programs recognise it. No error gets UNAVAILABLE:
/// within a tf.function TensorFlow replaces that by an internal error.
int code_of(int32_t status) {
  if (status == SIRTAKI_MISMATCH) return kFailedPrecondition;
  return status == SIRTAKI_INVALID ? kInvalidArgument : kAborted;
}

std::vector<int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(TF_NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

void* data_of(const TF_Tensor* tensor) { return place_of(TF_TensorData(tensor)); }

Tensor input_of(TF_OpKernelContext* context, int index, TF_Status* status) {
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context, index, &tensor, status);
  return Tensor(TF_GetCode(status) == kOk ? tensor : nullptr);
}

}  // namespace

const sirtaki_table* engine_table = nullptr;

void Call::start(TF_OpKernelContext* context, const Attributes& attributes, int tickets,
                 const Callback& done) {
  auto* call = new Call(context, attributes, done);
  const Status status;
  if (engine_table == nullptr) {
    call->fail(kFailedPrecondition, "import sirtaki.tensorflow before a graph that uses it runs");
    call->end();
  } else if (!call->take(TF_NumInputs(context) - tickets, status)) {
    TF_OpKernelContext_Failure(context, status);
    call->end();
  } else {
    call->submit();
  }
}

// ---- Before ----

bool Call::take(int inputs, TF_Status* status) {
  const bool splits = attributes_.request.kind == SIRTAKI_ALLTOALL;
  const int tensors = inputs - (splits ? 1 : 0);
  shapes_.reserve(static_cast<size_t>(tensors));
  for (int index = 0; index < tensors; ++index) {
    if (!take_tensor(index, status)) return false;
  }
  return !splits || take_splits(tensors, status);
}

bool Call::take_tensor(int index, TF_Status* status) {
  Tensor input = input_of(context_, index, status);
  if (input == nullptr) return false;
  type_ = TF_TensorType(input.get());
  bytes_ += TF_TensorByteSize(input.get());
  const auto& shape = shapes_.emplace_back(shape_of(input.get()));
  sirtaki_tensor& tensor = tensors_.emplace_back(
      sirtaki_tensor{data_of(input.get()), nullptr, shape.data(), shape.size()});
  if (attributes_.request.kind == SIRTAKI_ALLREDUCE ||
      attributes_.request.kind == SIRTAKI_BROADCAST) {
    // TensorFlow forwards a tensor with a single reference, which is this one for the moment.
    const void* before = tensor.input;
    input.reset();
    int forwarded = -1;
    Tensor output(TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(),
                                                  static_cast<int>(shape.size()), &forwarded,
                                                  status));
    if (TF_GetCode(status) != kOk) return false;
    tensor.output = data_of(output.get());
    if (forwarded < 0) {
      input = input_of(context_, index, status);
      if (input == nullptr) return false;
      tensor.input = before;
    } else {
      tensor.input = tensor.output;
    }
    held_.push_back(std::move(output));
  }
  held_.push_back(std::move(input));
  return true;
}

bool Call::take_splits(int index, TF_Status* status) {
  const Tensor input = input_of(context_, index, status);
  if (input == nullptr) return false;
  const auto shape = shape_of(input.get());
  if (shape.size() != 1) {
    TF_SetStatus(status, kInvalidArgument, "alltoall: splits must be a 1-D tensor");
    return false;
  }
  const auto* rows = static_cast<const int32_t*>(data_of(input.get()));
  splits_.assign(rows, rows + shape[0]);
  return true;
}

// ---- The operation ----

void Call::submit() {
  sirtaki_world* world = engine_table->current();
  if (world == nullptr) {
    fail(kFailedPrecondition, kNoWorld);
    return end();
  }
  sirtaki_request request = attributes_.request;
  request.dtype = tensors_.empty() ? SIRTAKI_U8 : dtype_of(type_);
  request.splits = splits_.data();
  request.split_count = splits_.size();
  begin(*engine_table, world, request, attributes_.name, tensors_, bytes_, this);
}

void* Call::allocate(size_t tensor, const int64_t* shape, size_t dimensions, size_t bytes) {
  const Status status;
  Tensor output(TF_AllocateOutput(context_, static_cast<int>(tensor), type_, shape,
                                  static_cast<int>(dimensions), bytes, status));
  if (!status.ok()) return nullptr;
  void* data = data_of(output.get());
  held_.push_back(std::move(output));
  return data;
}

// ---- After ----

void Call::finish(const sirtaki_operation* operation) {
  const int32_t status = engine_table->status(operation);
  if (status != SIRTAKI_OK) {
    fail(code_of(status), named(status, engine_table->message(operation)));
  } else if (attributes_.request.kind == SIRTAKI_ALLTOALL) {
    size_t count = 0;
    const int64_t* rows = engine_table->received_splits(operation, &count);
    give(1, std::vector<int32_t>(rows, rows + count), 1);
  } else if (attributes_.request.kind == SIRTAKI_JOIN) {
    give(0, {engine_table->value(operation)}, 0);
  }
  end();
}

void Call::give(int output, const std::vector<int32_t>& values, int dimensions) {
  const Status status;
  const auto count = static_cast<int64_t>(values.size());
  const Tensor tensor(TF_AllocateOutput(context_, output, kInt32, &count, dimensions,
                                        values.size() * sizeof(int32_t), status));
  if (status.ok()) {
    std::ranges::copy(values, static_cast<int32_t*>(data_of(tensor.get())));
  } else {
    TF_OpKernelContext_Failure(context_, status);
  }
}

void Call::fail(int code, const std::string& message) {
  const Status status;
  TF_SetStatus(status, code, message.c_str());
  TF_OpKernelContext_Failure(context_, status);
}

void Call::end() {
  const Callback done = done_;
  delete this;
  done();
}

}  // namespace sirtaki::tf
