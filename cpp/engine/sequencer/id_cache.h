#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/requests/request.h"

namespace sirtaki {

/// The sequencer's short ids of operations that all members have agreed on before.
///
/// When it is full it starts afresh. Ranks may have sent old ids already, so these stay valid until
/// all have answered that they have forgotten them.
class IdCache {
 public:
  struct Known {
    uint32_t id;
    Response response;
    std::vector<Request> requests;  ///< by member where they differ between members, else empty
  };

  /// `capacity` ids at a time; 0: none.
  explicit IdCache(int64_t capacity) : capacity_(capacity) {}

  /// The new id; 0 for what is not worth one, or where there is no room.
  uint32_t remember(const Response& response, const std::vector<Request>& requests);
  /// Stays where it is until it is forgotten. Throws for an id that nobody was told.
  const Known& at(uint32_t id) const;
  /// Ranks know its id, and are not about to forget it.
  bool is_current(const Known& known) const { return known.id >= oldest_; }
  /// Forgets the operations of a set, whose number will be another's.
  void forget_set(int32_t set);

  /// An operation found no room.
  bool full() const { return full_; }
  /// Begins to forget everything; false if `ranks` of them are still to answer the last time.
  bool flush(int ranks);
  /// A rank has forgotten the old ids; true if it was the last one. Throws if nobody asked it to.
  bool flushed(int rank);
  /// Forgets the old ids.
  void drop_old();

 private:
  int64_t capacity_;
  std::unordered_map<uint32_t, Known> known_;
  uint32_t next_ = 1;
  uint32_t oldest_ = 1;  ///< ranks have forgotten, or are about to, all ids before it
  bool full_ = false;
  int unflushed_ = 0;  ///< ranks that may still use forgotten ids
};

}  // namespace sirtaki
