#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/execution/flight.h"
#include "engine/requests/messages.h"
#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/requests/submission.h"

namespace sirtaki {

/// One rank's side of the negotiation: its submissions that may not run yet, and the short ids that
/// it knows. A plain state machine, like the sequencer: no threads, no clock, sends nothing.
class Negotiation {
 public:
  /// Receives the sequencer's messages.
  class Listener {
   public:
    /// Operations to run together.
    virtual void receive_batch(std::vector<Item> items) = 0;
    /// An operation that cannot be run.
    virtual void receive_refusal(const Entry& entry, const Error& error) = 0;
    /// All ids are forgotten; this message (Up) reports that to the sequencer.
    virtual void receive_flush(std::string_view answer) = 0;
    virtual void receive_tune(int64_t chunk_bytes) = 0;
    /// A rank of another host wants to connect.
    virtual void receive_meet(int rank) = 0;
    /// A rank left; nothing more will be run.
    virtual void receive_shutdown(int rank) = 0;
    /// The answer about what ranks are doing.
    virtual void receive_states(Reader& states) = 0;

   protected:
    ~Listener() = default;
  };

  /// `sets`: those that this rank knows at the time of each call.
  Negotiation(int rank, const ProcessSets& sets, Listener& listener)
      : rank_(rank), sets_(sets), listener_(listener) {}

  /// Takes a submission of this rank, numbers it if it has no name, and returns it. Throws
  /// Error(kInvalid) for a name in use.
  Entry& add(std::unique_ptr<Entry> entry);
  /// Its message to the sequencer (Up): the short id if all ranks know the request, else all of it.
  /// Its numbers too, if they may travel so and nothing else waits: of many small operations rank 0
  /// makes one, which moves fewer bytes through its host.
  std::string announcement(Entry& entry) const;
  /// Undoes `add`, before any announcement.
  void withdraw(const Entry& entry);

  /// Takes a message (Down …). Throws if it is impossible.
  void receive(std::string_view message);

  /// Whether rank 0 has offered its numbers of an operation.
  bool has_offer() const { return offer_.has_value(); }
  /// Completes that operation if this rank's numbers of it are on their way to rank 0, so that
  /// both get the same result. No agreement on it comes then.
  void use_offer();

  /// Drops and returns everything that waits.
  std::vector<std::unique_ptr<Entry>> drop();
  /// The number of operations that wait for other ranks, and any one of them, null if none.
  size_t waiting() const { return entries_.size(); }
  const Entry* first() const { return entries_.empty() ? nullptr : entries_.begin()->second.get(); }
  bool waits_for(const std::string& key) const { return entries_.count(key) > 0; }

  /// The short id of a request; 0: none.
  uint32_t id_of(const std::string& encoded) const;
  size_t known() const { return known_.size(); }

 private:
  void receive_batch(Reader& in);
  void receive_items(Reader& in, std::vector<Item>& items);
  Item receive_item(Reader& in);
  void receive_offer(Reader& in);
  void drop_offer(const std::string& key);
  std::shared_ptr<const Response> response_of(uint32_t id) const;
  void follow_sets(const Request& base, uint64_t ordinal);
  void check(const Item& item);
  void receive_error(Reader& in);
  void receive_flush();

  int rank_;
  const ProcessSets& sets_;
  Listener& listener_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;  ///< by match_key
  std::unordered_map<std::string, uint32_t> ids_;                    ///< by encoded request
  std::unordered_map<uint32_t, std::shared_ptr<const Response>> known_;
  std::map<int32_t, uint64_t> ordinals_;  ///< of the next unnamed request, by set

  /// Of an operation that was not agreed on yet.
  struct Offer {
    uint32_t id;
    uint64_t ordinal;
    std::string numbers;
    std::string key;
  };
  std::optional<Offer> offer_;  ///< not used yet
};

}  // namespace sirtaki
