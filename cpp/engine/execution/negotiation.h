#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
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

/// One rank's side of the negotiation: what it has submitted and may not run yet, and the short ids
/// that it knows. A plain state machine, as the sequencer is: no threads, no clock, sends nothing.
class Negotiation {
 public:
  /// What the sequencer says.
  struct Events {
    /// These are to be run in one go.
    std::function<void(std::vector<Item>)> batch;
    /// This cannot be run.
    std::function<void(const Entry&, const Error&)> refused;
    /// All ids are forgotten, which this message (Up) says to the sequencer.
    std::function<void(std::string_view answer)> flushed;
    std::function<void(int64_t chunk_bytes)> tuned;
    /// A rank of another host wants to connect.
    std::function<void(int rank)> met;
    /// A rank left; nothing more will be run.
    std::function<void(int rank)> ended;
    /// What ranks are doing, as was asked.
    std::function<void(Reader& states)> told;
  };

  /// `sets` are those that this rank knows, at any time.
  Negotiation(int rank, const ProcessSets& sets, Events events)
      : rank_(rank), sets_(sets), events_(std::move(events)) {}

  /// Takes what the rank submits, numbers it where it has no name, and returns it. Throws
  /// Error(kInvalid) for a name in use.
  Entry& add(std::unique_ptr<Entry> entry);
  /// What the sequencer is told of it (Up): the short id if all ranks know the request, else all.
  std::string announcement(const Entry& entry) const;
  /// Undoes `add`: nobody was told.
  void withdraw(const Entry& entry);

  /// Takes a message (Down …). Throws for what cannot be.
  void receive(std::string_view message);

  /// Drops and returns everything that waits.
  std::vector<std::unique_ptr<Entry>> drop();
  /// What waits for other ranks: how many, and any of them, null if none.
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
  std::shared_ptr<const Response> response_of(uint32_t id) const;
  void follow_sets(const Request& base, uint64_t ordinal);
  void check(const Item& item);
  void receive_error(Reader& in);
  void receive_flush();

  int rank_;
  const ProcessSets& sets_;
  Events events_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;  ///< by match_key
  std::unordered_map<std::string, uint32_t> ids_;                    ///< by encoded request
  std::unordered_map<uint32_t, std::shared_ptr<const Response>> known_;
  std::map<int32_t, uint64_t> ordinals_;  ///< of the next unnamed request, by set
};

}  // namespace sirtaki
