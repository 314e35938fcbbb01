#include "ffi/table.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "engine/engine.h"

/// Counted: every owner of a reference releases it.
struct sirtaki_world {
  explicit sirtaki_world(std::shared_ptr<sirtaki::Engine> of) : engine(std::move(of)) {}

  std::shared_ptr<sirtaki::Engine> engine;
  std::atomic<int64_t> owners{1};
};

struct sirtaki_operation {
  std::shared_ptr<sirtaki::Engine> engine;
  std::shared_ptr<sirtaki::Handle> handle{};
  std::atomic<int64_t> owners{1};
};

namespace sirtaki {
namespace {

template <class Owned>
void retain(Owned* owned) {
  owned->owners.fetch_add(1, std::memory_order_relaxed);
}

template <class Owned>
void release(Owned* owned) {
  if (owned->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete owned;
}

// ---- Worlds ----

std::mutex current_mutex;
std::shared_ptr<Engine> current_engine;

sirtaki_world* current() {
  const std::lock_guard lock(current_mutex);
  return current_engine == nullptr ? nullptr : new sirtaki_world(current_engine);
}

int64_t members(sirtaki_world* world, int32_t set, int32_t* ranks, size_t capacity) {
  try {
    const std::vector<int> found = world->engine->process_sets().at(set);
    std::copy_n(found.begin(), std::min(found.size(), capacity), ranks);
    return static_cast<int64_t>(found.size());
  } catch (const std::exception&) {
    return -1;
  }
}

// ---- Operations ----

void require_size(size_t given, size_t known, const char* what) {
  if (given >= known) return;
  throw invalid("a " + std::string(what) + " of " + std::to_string(given) +
                " bytes is of another version of the interface, which "
                "has " +
                std::to_string(known));
}

Request request_of(const sirtaki_request& asked) {
  require_size(asked.struct_size, sizeof(sirtaki_request), "request");
  Request request;
  request.kind = static_cast<Kind>(asked.kind);
  request.dtype = static_cast<Dtype>(asked.dtype);
  request.reduce = static_cast<ReduceOp>(asked.reduce);
  request.codec = static_cast<CodecId>(asked.codec);
  request.scale = {asked.prescale, asked.postscale};
  request.root = asked.root;
  request.set = asked.set;
  request.name.assign(asked.name == nullptr ? "" : asked.name, asked.name_bytes);
  // A joined rank must match the others' joins, whatever their names.
  if (request.kind == Kind::kJoin) request.name = "join." + std::to_string(request.set);
  for (size_t t = 0; t < asked.tensor_count; ++t) {
    const sirtaki_tensor& tensor = asked.tensors[t];
    request.shapes.emplace_back(tensor.shape, tensor.shape + tensor.dimensions);
  }
  request.splits.assign(asked.splits, asked.splits + asked.split_count);
  return request;
}

/// `rank`: the caller's rank.
Submission submission_of(const sirtaki_request& asked, int rank) {
  Submission submission{request_of(asked), {}, {}};
  const bool sends = asked.kind == SIRTAKI_BROADCAST && asked.root == rank;
  for (size_t t = 0; t < asked.tensor_count; ++t) {
    const sirtaki_tensor& tensor = asked.tensors[t];
    submission.inputs.push_back(tensor.input);
    // The sender already has the result.
    const bool has_result = sends && tensor.output == nullptr;
    submission.outputs.push_back(has_result ? const_cast<void*>(tensor.input) : tensor.output);
  }
  if (asked.allocate != nullptr) {
    submission.allocate = [allocate = asked.allocate, user = asked.user](
                              size_t t, const Shape& shape, size_t bytes) {
      return allocate(user, t, shape.data(), shape.size(), bytes);
    };
  }
  return submission;
}

/// Its handle holds a reference to it until the callback has returned.
sirtaki_operation* new_operation(const sirtaki_world& world,
                                 void (*done)(void* user, sirtaki_operation*), void* user) {
  auto* operation = new sirtaki_operation{world.engine};
  Handle::OnDone on_done;
  if (done != nullptr) {
    retain(operation);
    on_done = [operation, done, user](const Handle&) {
      done(user, operation);
      release(operation);
    };
  }
  operation->handle = std::make_shared<Handle>(std::move(on_done));
  return operation;
}

sirtaki_operation* failed(sirtaki_operation* operation, const Error& error) {
  Handle& handle = *operation->handle;
  if (handle.complete(error) && handle.calls_back()) handle.call_back();
  return operation;
}

/// Begins an operation; an exception of `begin` becomes its error.
template <class Begin>
sirtaki_operation* begun(sirtaki_operation* operation, Begin begin) {
  try {
    begin();
    return operation;
  } catch (const Error& refused) {
    return failed(operation, refused);
  } catch (const std::exception& other) {
    return failed(operation, Error(ErrorCode::kInternal, other.what()));
  }
}

sirtaki_operation* submit(sirtaki_world* world, const sirtaki_request* asked) {
  sirtaki_operation* operation = new_operation(*world, asked->done, asked->user);
  return begun(operation, [&] {
    Submission submission = submission_of(*asked, world->engine->rank());
    submission.handle = operation->handle;
    // A single rank has no other thread to continue after its patience, so it stays until done.
    if (asked->patience_ns > 0 && world->engine->size() > 1) {
      world->engine->submit_and_wait(std::move(submission),
                                     now_ns() + std::min(asked->patience_ns, kLongestNs));
    } else {
      world->engine->submit(std::move(submission));
    }
  });
}

Transfer transfer_of(const sirtaki_message& asked, bool sends) {
  require_size(asked.struct_size, sizeof(sirtaki_message), "message");
  Transfer transfer{
      sends, asked.rank, asked.set, asked.tag, static_cast<std::byte*>(asked.data), asked.bytes};
  if (!sends && asked.allocate != nullptr) {
    transfer.room = [allocate = asked.allocate, user = asked.user](size_t bytes) {
      return static_cast<std::byte*>(allocate(user, bytes));
    };
  }
  return transfer;
}

template <bool kSends>
sirtaki_operation* start(sirtaki_world* world, const sirtaki_message* asked) {
  sirtaki_operation* operation = new_operation(*world, asked->done, asked->user);
  return begun(operation, [&] {
    Transfer transfer = transfer_of(*asked, kSends);
    transfer.owner = operation->handle;
    world->engine->start(std::move(transfer));
  });
}

sirtaki_received received(const sirtaki_operation* operation) {
  const Message& message = operation->handle->message;
  return {message.bytes, message.tag, message.source};
}

int32_t wait(sirtaki_operation* operation, int64_t timeout_ns) {
  const int64_t limit = timeout_ns < 0 ? kForever : now_ns() + std::min(timeout_ns, kLongestNs);
  try {
    return operation->engine->wait(*operation->handle, limit) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;  // in a forked child it will never be done
  }
}

int32_t status(const sirtaki_operation* operation) {
  const auto& error = operation->handle->error();
  return error ? static_cast<int32_t>(error->code) + 1 : SIRTAKI_OK;
}

const char* message(const sirtaki_operation* operation) {
  const auto& error = operation->handle->error();
  return error ? error->what() : "";
}

sirtaki_result result(const sirtaki_operation* operation, size_t tensor) {
  const Buffer& buffer = *operation->handle->outputs.at(tensor);
  return {buffer.data(), buffer.bytes(), buffer.shape().data(), buffer.shape().size()};
}

const int64_t* received_splits(const sirtaki_operation* operation, size_t* count) {
  *count = operation->handle->received_splits.size();
  return operation->handle->received_splits.data();
}

// ---- Hooks ----

int64_t add_hooks(sirtaki_world* world, const sirtaki_hooks* asked) {
  if (asked->struct_size < sizeof(sirtaki_hooks)) return 0;
  return world->engine->hooks().add(
      [hooks = *asked](Hooks::Moment moment, const Request& request, const Error* error) {
        const auto hook = moment == Hooks::Moment::kBefore  ? hooks.before
                          : moment == Hooks::Moment::kAfter ? hooks.after
                                                            : hooks.abort;
        if (hook == nullptr) return;
        const sirtaki_event event{
            .kind = static_cast<int32_t>(request.kind),
            .dtype = static_cast<int32_t>(request.dtype),
            .set = request.set,
            .status = error == nullptr ? SIRTAKI_OK : static_cast<int32_t>(error->code) + 1,
            .bytes = bytes_of(request),
            .name = request.name.c_str(),
            .message = error == nullptr ? "" : error->what(),
        };
        hook(hooks.user, &event);
      });
}

}  // namespace

static_assert(static_cast<int>(Kind::kAllreduce) == SIRTAKI_ALLREDUCE);
static_assert(static_cast<int>(Kind::kJoin) == SIRTAKI_JOIN);
static_assert(kAnySource == SIRTAKI_ANY_SOURCE);
static_assert(static_cast<int>(Dtype::kBool) == SIRTAKI_BOOL);
static_assert(static_cast<int>(Dtype::kF64) == SIRTAKI_F64);
static_assert(static_cast<int>(Dtype::kU16) == SIRTAKI_U16);
static_assert(static_cast<int>(Dtype::kF8E8M0FNU) == SIRTAKI_F8E8M0FNU);
static_assert(static_cast<int>(Dtype::kBC32) == SIRTAKI_BC32);
static_assert(static_cast<int>(ReduceOp::kAverage) == SIRTAKI_AVERAGE);
static_assert(static_cast<int>(ReduceOp::kBitXor) == SIRTAKI_BIT_XOR);
static_assert(static_cast<int>(CodecId::kNone) == SIRTAKI_CODEC_OWN);
static_assert(static_cast<int>(CodecId::kF16) == SIRTAKI_CODEC_F16);
static_assert(static_cast<int>(CodecId::kBF16) == SIRTAKI_CODEC_BF16);
static_assert(static_cast<int>(CodecId::kInt8) == SIRTAKI_CODEC_INT8);
static_assert(static_cast<int>(CodecId::kInt4) == SIRTAKI_CODEC_INT4);
static_assert(static_cast<int>(ErrorCode::kInternal) + 1 == SIRTAKI_INTERNAL);
static_assert(static_cast<int>(ErrorCode::kPeerLost) + 1 == SIRTAKI_PEER_LOST);
static_assert(static_cast<int>(ErrorCode::kTimeout) + 1 == SIRTAKI_TIMEOUT);
static_assert(static_cast<int>(ErrorCode::kMismatch) + 1 == SIRTAKI_MISMATCH);
static_assert(static_cast<int>(ErrorCode::kInvalid) + 1 == SIRTAKI_INVALID);

const sirtaki_table& ffi_table() {
  static const sirtaki_table table{
      .struct_size = sizeof(sirtaki_table),
      .version = SIRTAKI_FFI_VERSION,
      .current = current,
      .retain_world = retain<sirtaki_world>,
      .release_world = release<sirtaki_world>,
      .rank = [](const sirtaki_world* world) { return world->engine->rank(); },
      .size = [](const sirtaki_world* world) { return world->engine->size(); },
      .members = members,
      .submit = submit,
      .poll = [](const sirtaki_operation* operation) -> int32_t {
        return operation->handle->done() ? 1 : 0;
      },
      .wait = wait,
      .retain = retain<sirtaki_operation>,
      .release = release<sirtaki_operation>,
      .status = status,
      .message = message,
      .result_count =
          [](const sirtaki_operation* operation) { return operation->handle->outputs.size(); },
      .result = result,
      .received_splits = received_splits,
      .value = [](const sirtaki_operation* operation) { return operation->handle->value; },
      .send = start<true>,
      .receive = start<false>,
      .received = received,
      .add_hooks = add_hooks,
      .remove_hooks = [](sirtaki_world* world,
                         int64_t number) { world->engine->hooks().remove(number); },
  };
  return table;
}

void set_current_engine(std::shared_ptr<Engine> engine) {
  const std::lock_guard lock(current_mutex);
  current_engine = std::move(engine);
}

}  // namespace sirtaki
