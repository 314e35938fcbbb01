#include "engine/sequencer/id_cache.h"

#include "base/error.h"
#include "collectives/kinds.h"

namespace sirtaki {
namespace {

// Of a response worth remembering: more than these are bigger than the messages they would save.
constexpr size_t kMostSizes = 4096;

bool is_worth_an_id(const Response& response) {
  const bool has_tensors = traits_of(response.base.kind).shapes != ShapeRule::kNone;
  return has_tensors && response.sizes.size() <= kMostSizes;
}

}  // namespace

uint32_t IdCache::remember(const Response& response, const std::vector<Request>& requests) {
  if (capacity_ <= 0 || !is_worth_an_id(response)) return 0;
  if (static_cast<int64_t>(known_.size()) >= capacity_) {
    full_ = true;
    return 0;
  }
  const uint32_t id = next_++;
  known_[id] = {id, response, requests};
  return id;
}

const IdCache::Known& IdCache::at(uint32_t id) const {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  throw Error(ErrorCode::kInternal,
              "nobody was told of an operation with id " + std::to_string(id));
}

void IdCache::forget_set(int32_t set) {
  std::erase_if(known_, [&](const auto& item) { return item.second.response.base.set == set; });
}

bool IdCache::flush(int ranks) {
  full_ = false;
  if (unflushed_ > 0) return false;
  oldest_ = next_;
  unflushed_ = ranks;
  return true;
}

bool IdCache::flushed(int rank) {
  if (unflushed_ <= 0) {
    throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) +
                                          " has forgotten ids that nobody asked it to forget");
  }
  return --unflushed_ == 0;
}

void IdCache::drop_old() {
  std::erase_if(known_, [&](const auto& item) { return item.first < oldest_; });
}

}  // namespace sirtaki
