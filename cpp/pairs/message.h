#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

namespace sirtaki {

/// Stands for the rank that a message comes from.
inline constexpr int kAnySource = -1;

/// A received message.
struct Message {
  int32_t source = kAnySource;
  int64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  ///< of those from its source to this rank, from 1 on; 0: from this rank
};

/// Returns memory for a message, once its size is known; null: there is none.
using Room = std::function<std::byte*(size_t bytes)>;

/// A request to send, to receive, or to withdraw the receive of the same owner.
struct Transfer {
  bool sends = false;
  int peer = kAnySource;     ///< rank of the world
  int32_t communicator = 0;  ///< of the caller; the number of a process set
  int64_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;               ///< of the message; of a receive: at most
  Room room{};                    ///< if a receive has one, it provides the memory
  std::shared_ptr<void> owner{};  ///< whom the events are for
  bool withdraws = false;
  uint64_t* number = nullptr;  ///< where a send stores its number among those to the peer
};

/// Process sets that have the same number, one after the other, are different communicators: the
/// bits above the set's number hold how many sets had it before.
inline constexpr int32_t kSets = 1 << 10;
inline int32_t set_of(int32_t communicator) { return communicator & (kSets - 1); }

/// The communicators of the existing process sets; equal on all ranks that removed the same sets.
class Communicators {
 public:
  int32_t of(int32_t set) const { return static_cast<int32_t>(removed(set) * kSets) | set; }
  /// From now on another set has the number; returns the set's communicator.
  int32_t remove(int32_t set) {
    const int32_t before = of(set);
    ++removed_[set];
    return before;
  }
  /// Whether its process set was removed on this rank.
  bool is_over(int32_t communicator) const {
    const uint32_t before = static_cast<uint32_t>(communicator) / kSets;
    const uint32_t ahead = before - removed(set_of(communicator));
    return static_cast<int32_t>(ahead * kSets) < 0;  // the count wraps
  }

 private:
  uint32_t removed(int32_t set) const {
    if (removed_.empty()) return 0;
    const auto found = removed_.find(set);
    return found == removed_.end() ? 0 : found->second;
  }

  std::unordered_map<int32_t, uint32_t> removed_;  ///< by number: how many sets
};

/// The description for users: `receive from rank 1 with tag 5`.
inline std::string describe(bool sends, int peer, int64_t tag, int32_t communicator) {
  std::string text = sends ? "send to " : "receive from ";
  text += peer == kAnySource ? "any rank" : "rank " + std::to_string(peer);
  text += " with tag " + std::to_string(tag);
  const int32_t set = set_of(communicator);
  if (set != 0) text += " in process set " + std::to_string(set);
  return text;
}
inline std::string describe(const Transfer& transfer) {
  return describe(transfer.sends, transfer.peer, transfer.tag, transfer.communicator);
}

/// The kinds of frames that ranks send each other about messages.
enum class Note : uint32_t {
  kEager,   ///< a message, which follows
  kOffer,   ///< a message that the sender keeps until it is asked for
  kShow,    ///< the same for one in the sender's shared heap
  kPulled,  ///< the receiver has copied, or does not want, what was offered
  kAsk,     ///< the receiver asks for the offered message in parts
  kPart,    ///< the next part of it, which follows
  kCredit,  ///< this many bytes of eager messages are no longer kept
  kBye,     ///< nothing more will come
};

/// Precedes every message and part.
struct Header {
  Note note;
  int32_t communicator;
  int64_t tag;
  uint64_t bytes;    ///< of the message, or of the part
  uint64_t key;      ///< the sender's number for what it offered
  uint64_t address;  ///< of what is offered, in the sender's process, or shown, in its heap
};

}  // namespace sirtaki
