#include "engine/engine.h"

// What the sequencer has decided, and what that means for this rank.
namespace sirtaki {
namespace {

constexpr int64_t kLeastChunk = 4096;  // as Python's Config has it
constexpr int64_t kMostChunk = int64_t{1} << 48;

}  // namespace

Negotiation::Events Engine::negotiation_events() {
  return {[this](std::vector<Item> items) { receive_batch(std::move(items)); },
          [this](const Entry& entry, const Error& error) { complete(entry, error); },
          [this](std::string_view answer) { receive_flush(answer); },
          [this](int64_t chunk_bytes) { receive_tune(chunk_bytes); },
          [this](int rank) { receive_meet(rank); },
          [this](int rank) { receive_shutdown(rank); }};
}

void Engine::receive_tune(int64_t chunk_bytes) {
  if (chunk_bytes < kLeastChunk || chunk_bytes > kMostChunk) {
    throw Error(ErrorCode::kInternal,
                "a chunk cannot have " + std::to_string(chunk_bytes) + " bytes");
  }
  chunk_bytes_ = static_cast<size_t>(chunk_bytes);
}

void Engine::receive_batch(std::vector<Item> items) {
  for (Item& item : items) {
    item.record = item.entry != nullptr ? item.entry->record
                                        : recorder_.submitted(item.response->base, item.ordinal);
    recorder_.agreed(item.record);
  }
  if (sequencer_ != nullptr && !items.empty() && !items[0].response->base.launched()) {
    busy_.push_back(backend_->lane_of(items[0].response->base.set));
  }
  Batch batch;
  batch.items = std::move(items);
  batch.chunk_bytes = chunk_bytes_;
  runner_.add(std::move(batch));
}

void Engine::receive_flush(std::string_view answer) {
  if (rank_ == 0) {
    sequencer_->receive(0, answer, now_ns());
  } else {
    control_.send_up(answer, true);
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
  for (const auto& entry : negotiation_.drop()) complete(*entry, *ended_);
  control_.drop_up();
  Batch end;
  end.last = true;
  runner_.add(std::move(end));
}

}  // namespace sirtaki
