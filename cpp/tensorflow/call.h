#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ffi/sirtaki.h"
#include "tensorflow/api.h"
#include "tensorflow/callback.h"

namespace sirtaki::tf {

/// The description of an operation in a node of a graph.
struct Attributes {
  std::string name{};
  sirtaki_request request{};  ///< as far as the node determines it
};

/// The engine's interface, set by Python; null before that.
extern const sirtaki_table* engine_table;

/// A reference to a TensorFlow tensor.
struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

/// One run of a kernel, from its start to TensorFlow's callback.
class Call {
 public:
  /// Starts the operation that the attributes describe, on all inputs but the last `tickets`.
  /// `done` is called once, at the end, from any thread, perhaps before this returns.
  static void start(TF_OpKernelContext* context, const Attributes& attributes, int tickets,
                    const Callback& done);

  /// Only the engine calls it.
  void* allocate(size_t tensor, const int64_t* shape, size_t dimensions, size_t bytes);
  void finish(const sirtaki_operation* operation);

 private:
  Call(TF_OpKernelContext* context, const Attributes& attributes, const Callback& done)
      : context_(context), attributes_(attributes), done_(done) {}

  /// Takes inputs, and outputs whose shapes are known; false: `status` has the reason.
  bool take(int inputs, TF_Status* status);
  bool take_tensor(int index, TF_Status* status);
  bool take_splits(int index, TF_Status* status);

  void submit();
  /// Returns results of an operation other than tensors.
  void give(int output, const std::vector<int32_t>& values, int dimensions);

  void fail(int code, const std::string& message);
  /// Releases everything and notifies TensorFlow; this object is then gone.
  void end();

  TF_OpKernelContext* context_;
  const Attributes& attributes_;
  Callback done_;
  std::vector<Tensor> held_{};
  std::vector<std::vector<int64_t>> shapes_{};
  std::vector<sirtaki_tensor> tensors_{};
  std::vector<int64_t> splits_{};
  int type_ = kUint8;
  size_t bytes_ = 0;
};

}  // namespace sirtaki::tf
