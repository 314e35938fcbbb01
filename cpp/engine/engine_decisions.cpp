#include <algorithm>

#include "engine/checks.h"
#include "engine/engine.h"
#include "engine/kinds.h"

// What the sequencer has decided, and what that means for this rank.
namespace sirtaki {
namespace {

constexpr int64_t kLeastChunk = 4096;  // as Python's Config has it
constexpr int64_t kMostChunk = int64_t{1} << 48;

}  // namespace

void Engine::receive_down(std::string_view message) {
  Reader in(message);
  switch (in.get<Down>()) {
    case Down::kBatch:
      return receive_batch(in);
    case Down::kError:
      return receive_error(in);
    case Down::kFlush:
      return receive_flush();
    case Down::kTune:
      return receive_tune(in.get<int64_t>());
    case Down::kShutdown:
      return receive_shutdown(in.get<int32_t>());
    case Down::kMeet:
      return receive_meet(in.get<int32_t>());
  }
  throw Error(ErrorCode::kInternal, "unknown control message");
}

void Engine::receive_tune(int64_t chunk_bytes) {
  if (chunk_bytes < kLeastChunk || chunk_bytes > kMostChunk) {
    throw Error(ErrorCode::kInternal,
                "a chunk cannot have " + std::to_string(chunk_bytes) + " bytes");
  }
  chunk_bytes_ = static_cast<size_t>(chunk_bytes);
}

void Engine::receive_batch(Reader& in) {
  Batch batch;
  batch.chunk_bytes = chunk_bytes_;
  try {
    receive_items(in, batch.items);
  } catch (...) {
    runner_.add(std::move(batch));  // where those before the wrong one are found and failed
    throw;
  }
  if (sequencer_ != nullptr) {
    busy_.push_back(backend_->lane_of(batch.items[0].response->base.set));
  }
  runner_.add(std::move(batch));
}

void Engine::receive_items(Reader& in, std::vector<Item>& items) {
  const auto count = in.get<uint32_t>();
  if (count == 0) throw Error(ErrorCode::kInternal, "a batch of nothing");
  for (uint32_t i = 0; i < count; ++i) {
    items.push_back(receive_item(in));
    if (i > 0 && !can_fuse(items[0].response->base, items[i].response->base)) {
      throw Error(ErrorCode::kInternal, "a batch of operations that cannot be run as one");
    }
  }
}

Item Engine::receive_item(Reader& in) {
  Item item;
  const bool full = in.get<bool>();
  const auto id = in.get<uint32_t>();
  item.ordinal = in.get<uint64_t>();
  if (full) {
    item.response = std::make_shared<const Response>(Response::decode(in));
    if (id != 0) known_[id] = item.response;
  } else {
    item.response = response_of(id);
  }
  const Request& base = item.response->base;
  if (base.kind == Kind::kJoin) ordinals_[base.set] = std::max(ordinals_[base.set], item.ordinal);
  if (base.kind == Kind::kRemoveSet) {  // its number will be another set's
    ordinals_.erase(base.root);
    ids_.clear();
  }
  item.entry = take_entry(base, item.ordinal);
  check_item(item);
  if (full && id != 0 && item.entry != nullptr) ids_[item.entry->encoded] = id;
  return item;
}

std::shared_ptr<const Response> Engine::response_of(uint32_t id) const {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  throw Error(ErrorCode::kInternal, "no operation has the id " + std::to_string(id));
}

void Engine::check_item(const Item& item) {
  const Request* own = item.entry != nullptr ? &item.entry->request : nullptr;
  const std::string why = contradiction(*item.response, own, sets_, rank_);
  if (why.empty()) return;
  const Error error(ErrorCode::kInternal, "cannot run " +
                                              describe(item.response->base, item.ordinal) +
                                              " as rank 0 has decided: " + why);
  if (own != nullptr) complete(*item.entry, error);
  throw error;
}

std::unique_ptr<Entry> Engine::take_entry(const Request& request, uint64_t ordinal) {
  auto node = entries_.extract(match_key(request, ordinal));
  return node.empty() ? nullptr : std::move(node.mapped());
}

void Engine::receive_error(Reader& in) {
  auto node = entries_.extract(in.get_string());
  const auto code = static_cast<ErrorCode>(in.get<uint8_t>());
  const std::string text = in.get_string();
  if (!node.empty()) complete(*node.mapped(), Error(code, text));
}

void Engine::receive_flush() {
  ids_.clear();
  known_.clear();
  std::string message;
  Writer(message).put(Up::kFlushed);
  if (rank_ == 0) {
    sequencer_->receive(0, message, now_ns());
  } else {
    control_.send_up(message, true);
  }
}

void Engine::receive_shutdown(int rank) {
  const std::string who = rank == rank_ ? "this rank" : rank_text(rank);
  if (!ended_) {
    ended_ = Error(ErrorCode::kInternal,
                   "the world has been shut down: " + who +
                       " left (its script ended, it raised an exception, or it called shutdown()); "
                       "let every rank run the same number of steps, or use join()");
  }
  for (auto& [key, entry] : entries_) complete(*entry, *ended_);
  entries_.clear();
  control_.drop_up();
  Batch end;
  end.last = true;
  runner_.add(std::move(end));
}

}  // namespace sirtaki
