#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "collectives/kinds.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// The sequencer's short ids of operations that all members have agreed on before.
///
/// When it is full it starts afresh. Ranks may already have sent old ids, so these stay valid until
/// all ranks have answered that they have forgotten them.
class IdCache {
 public:
  struct Known {
    uint32_t id;
    Response response;
    std::vector<Request> requests;  ///< by member if they differ between members, else empty
  };

  /// `capacity` ids at a time; 0: none.
  explicit IdCache(int64_t capacity) : capacity_(capacity) {}

  /// Returns the new id; 0 if the operation is not worth one, or there is no room.
  uint32_t remember(const Response& response, const std::vector<Request>& requests) {
    if (capacity_ <= 0 || !is_worth_an_id(response)) return 0;
    if (static_cast<int64_t>(known_.size()) >= capacity_) {
      full_ = true;
      return 0;
    }
    const uint32_t id = next_++;
    known_[id] = {id, response, requests};
    return id;
  }
  /// The reference stays valid until the id is forgotten. Throws for an id that was not sent out.
  const Known& at(uint32_t id) const {
    const auto found = known_.find(id);
    if (found != known_.end()) return found->second;
    throw Error(ErrorCode::kInternal,
                "nobody was told of an operation with id " + std::to_string(id));
  }
  /// Whether ranks know its id, and are not about to forget it.
  bool is_current(const Known& known) const { return known.id >= oldest_; }
  /// Forgets the operations of a set, whose number another one will get.
  void forget_set(int32_t set) {
    std::erase_if(known_, [&](const auto& item) { return item.second.response.base.set == set; });
  }

  /// Whether an operation did not fit.
  bool full() const { return full_; }
  /// Begins to forget everything, which `ranks` ranks must confirm; false if the last time is open.
  bool flush(int ranks) {
    full_ = false;
    if (unflushed_ > 0) return false;
    oldest_ = next_;
    unflushed_ = ranks;
    return true;
  }
  /// A rank has forgotten the old ids; true if it was the last one. Throws if it was not asked to.
  bool flushed(int rank) {
    if (unflushed_ > 0) return --unflushed_ == 0;
    throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) +
                                          " has forgotten ids that nobody asked it to forget");
  }
  /// Forgets the old ids.
  void drop_old() {
    std::erase_if(known_, [&](const auto& item) { return item.first < oldest_; });
  }

 private:
  static bool is_worth_an_id(const Response& response) {
    constexpr size_t kMostSizes = 4096;  // larger ones exceed the messages that they would save
    const bool has_tensors = traits_of(response.base.kind).shapes != ShapeRule::kNone;
    return has_tensors && response.sizes.size() <= kMostSizes;
  }

  int64_t capacity_;
  std::unordered_map<uint32_t, Known> known_;
  uint32_t next_ = 1;
  uint32_t oldest_ = 1;  ///< ranks have forgotten, or are about to forget, all ids before it
  bool full_ = false;
  int unflushed_ = 0;  ///< ranks that may still use forgotten ids
};

}  // namespace sirtaki
