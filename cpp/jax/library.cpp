#include <xla/ffi/api/ffi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/caller.h"
#include "jax/completer.h"

/// One XLA handler for all collectives. XLA waits for the future that it returns, not in the
/// handler, since ranks may start the operations of a program in different orders.
namespace sirtaki::jax {
namespace {

namespace ffi = xla::ffi;

const sirtaki_table* engine_table = nullptr;

int32_t dtype_of(ffi::DataType type) {
  static constexpr std::pair<ffi::DataType, int32_t> kTypes[] = {
      {ffi::PRED, SIRTAKI_BOOL},
      {ffi::U8, SIRTAKI_U8},
      {ffi::S8, SIRTAKI_I8},
      {ffi::S16, SIRTAKI_I16},
      {ffi::S32, SIRTAKI_I32},
      {ffi::S64, SIRTAKI_I64},
      {ffi::F16, SIRTAKI_F16},
      {ffi::BF16, SIRTAKI_BF16},
      {ffi::F32, SIRTAKI_F32},
      {ffi::F64, SIRTAKI_F64},
      {ffi::U16, SIRTAKI_U16},
      {ffi::U32, SIRTAKI_U32},
      {ffi::U64, SIRTAKI_U64},
      {ffi::C64, SIRTAKI_C64},
      {ffi::C128, SIRTAKI_C128},
      {ffi::F8E4M3FN, SIRTAKI_F8E4M3FN},
      {ffi::F8E4M3FNUZ, SIRTAKI_F8E4M3FNUZ},
      {ffi::F8E5M2, SIRTAKI_F8E5M2},
      {ffi::F8E5M2FNUZ, SIRTAKI_F8E5M2FNUZ},
      {ffi::F8E3M4, SIRTAKI_F8E3M4},
      {ffi::F8E4M3, SIRTAKI_F8E4M3},
      {ffi::F8E4M3B11FNUZ, SIRTAKI_F8E4M3B11FNUZ},
      {ffi::F8E8M0FNU, SIRTAKI_F8E8M0FNU}};
  return dtype_in(kTypes, type);
}

/// One call of the handler, from its start to the completion of its future.
class Call {
 public:
  explicit Call(ffi::Promise promise) : promise_(std::move(promise)) {}

  /// Takes operands and results; returns "" or what is wrong with them.
  std::string take(ffi::RemainingArgs& operands, ffi::RemainingRets& results) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto operand = operands.get<ffi::AnyBuffer>(i);
      if (!operand.has_value()) return "an operand that is no array";
      const auto shape = operand->dimensions();
      dtype_ = dtype_of(operand->element_type());
      if (dtype_ < 0) return "arrays of this type are not supported";
      tensors_.push_back({place_of(operand->untyped_data()), nullptr, shape.begin(), shape.size()});
      bytes_ += operand->size_bytes();
    }
    for (size_t i = 0; i < results.size(); ++i) {
      auto result = results.get<ffi::AnyBuffer>(i);
      if (!result.has_value()) return "a result that is no array";
      outputs_.push_back({place_of((*result)->untyped_data()), (*result)->size_bytes()});
    }
    return "";
  }

  /// Begins the operation, which fails unless the expected rows come from each member, for each
  /// array in turn. The handler then returns to XLA. Results of a known shape are written where XLA
  /// wants them; for others, the engine calls `allocate`.
  void submit(sirtaki_world* world, sirtaki_request request, std::string name,
              ffi::Span<const int64_t> received) {
    if (request.kind == SIRTAKI_ALLREDUCE || request.kind == SIRTAKI_BROADCAST) {
      for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].output = outputs_[i].data;
    }
    request.dtype = tensors_.empty() ? SIRTAKI_U8 : dtype_;
    name_ = std::move(name);
    expected_.assign(received.begin(), received.end());
    begin(*engine_table, world, request, name_, tensors_, bytes_, this);
    if (phase_.exchange(Phase::kLeft) == Phase::kDone) resolve();
  }

  /// Only the engine calls it.
  void* allocate(size_t tensor, const int64_t*, size_t, size_t bytes) {
    return outputs_[tensor].bytes == bytes ? outputs_[tensor].data : nullptr;
  }

  void finish(const sirtaki_operation* operation) {
    status_ = engine_table->status(operation);
    why_ = engine_table->message(operation);
    check_rows(operation);
    if (phase_.exchange(Phase::kDone) == Phase::kLeft) {
      Completer::instance().add([this] { resolve(); });
    }
  }

 private:
  struct Output {
    void* data;
    size_t bytes;
  };

  enum class Phase { kBegun, kDone, kLeft };

  /// Fails also on a rank whose own result fits when those of others do not.
  void check_rows(const sirtaki_operation* operation) {
    size_t count = 0;
    const int64_t* rows = engine_table->received_splits(operation, &count);
    const std::vector<int64_t> received(rows, rows + count);
    if (expected_.empty() || received.empty() || received == expected_) return;
    status_ = SIRTAKI_MISMATCH;
    why_ = name_ + ": the ranks bring " + listed(received) +
           " rows, but this rank's program was compiled for " + listed(expected_) +
           "; within jit, arrays must have the same shape on all ranks, and received_splits of "
           "alltoall be what the others send";
  }

  static std::string listed(const std::vector<int64_t>& rows) {
    std::string text;
    for (const int64_t count : rows) text += (text.empty() ? "" : ", ") + std::to_string(count);
    return text;
  }

  /// Completes the future and deletes this.
  void resolve() {
    if (status_ == SIRTAKI_OK) {
      promise_.SetAvailable();
    } else {
      promise_.SetError(ffi::Error(code_of(status_), named(status_, why_)));
    }
    delete this;
  }

  static ffi::ErrorCode code_of(int32_t status) {
    const bool callers = status == SIRTAKI_MISMATCH || status == SIRTAKI_INVALID;
    return callers ? ffi::ErrorCode::kInvalidArgument : ffi::ErrorCode::kAborted;
  }

  ffi::Promise promise_;
  std::atomic<Phase> phase_{Phase::kBegun};
  size_t bytes_ = 0;
  int32_t dtype_ = -1;
  std::vector<sirtaki_tensor> tensors_{};
  std::vector<Output> outputs_{};
  std::string name_{};
  std::vector<int64_t> expected_{};
  int32_t status_ = SIRTAKI_OK;
  std::string why_{};
};

ffi::Future refused(ffi::ErrorCode code, const std::string& why) {
  ffi::Promise promise;
  ffi::Future future(promise);
  promise.SetError(ffi::Error(code, why));
  return future;
}

/// The name of an operation on a device: all devices of a process run the same program at once.
std::string name_on(int32_t device, std::string_view name) {
  return device > 0 ? std::string(name) + "@" + std::to_string(device) : std::string(name);
}

ffi::Future collective(int32_t device, std::string_view shared_name, int64_t kind,
                       int64_t reduce_op, int64_t root_rank, int64_t process_set, int64_t codec,
                       double prescale, double postscale, ffi::Span<const int64_t> splits,
                       ffi::Span<const int64_t> received, ffi::RemainingArgs operands,
                       ffi::RemainingRets results) {
  sirtaki_world* world = engine_table->current();
  if (world == nullptr) {
    return refused(ffi::ErrorCode::kFailedPrecondition, kNoWorld);
  }
  std::string name = name_on(device, shared_name);
  ffi::Promise promise;
  ffi::Future future(promise);
  auto call = std::make_unique<Call>(promise);
  if (const std::string wrong = call->take(operands, results); !wrong.empty()) {
    engine_table->release_world(world);
    return refused(ffi::ErrorCode::kInvalidArgument, name + ": " + wrong);
  }
  sirtaki_request request{};
  request.kind = static_cast<int32_t>(kind);
  request.reduce = static_cast<int32_t>(reduce_op);
  request.root = static_cast<int32_t>(root_rank);
  request.set = static_cast<int32_t>(process_set);
  request.codec = static_cast<int32_t>(codec);
  request.prescale = prescale;
  request.postscale = postscale;
  request.splits = splits.begin();
  request.split_count = splits.size();
  call.release()->submit(world, request, std::move(name), received);
  return future;
}

}  // namespace
}  // namespace sirtaki::jax

#define SIRTAKI_EXPORT extern "C" __attribute__((visibility("default")))

SIRTAKI_EXPORT XLA_FFI_Error* sirtaki_collective(XLA_FFI_CallFrame*);

XLA_FFI_DEFINE_HANDLER_SYMBOL(sirtaki_collective, sirtaki::jax::collective,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Attr<std::string_view>("name")
                                  .Attr<int64_t>("kind")
                                  .Attr<int64_t>("reduce_op")
                                  .Attr<int64_t>("root_rank")
                                  .Attr<int64_t>("process_set")
                                  .Attr<int64_t>("codec")
                                  .Attr<double>("prescale")
                                  .Attr<double>("postscale")
                                  .Attr<xla::ffi::Span<const int64_t>>("splits")
                                  .Attr<xla::ffi::Span<const int64_t>>("received")
                                  .RemainingArgs()
                                  .RemainingRets());

/// Passes the engine's interface to the library; returns what is wrong, "" if nothing is.
SIRTAKI_EXPORT const char* sirtaki_jax_connect(const sirtaki_table* table) {
  const char* problem = sirtaki::problem_of(*table);
  if (*problem == '\0') sirtaki::jax::engine_table = table;
  return problem;
}
