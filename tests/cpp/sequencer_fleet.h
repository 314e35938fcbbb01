#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/negotiation.h"
#include "engine/sequencer/sequencer.h"
#include "requests.h"
#include "transport/hosts.h"

// The ranks of a world as the sequencer sees them, without threads: what they send and receive.
namespace sirtaki::testing {

/// An operation that a rank was told to run.
struct Told {
  Response response;
  uint64_t ordinal = 0;
  bool by_id = false;
  std::string result;  ///< what the agreement carried

  const std::string& name() const { return response.base.name; }
};

/// A rank: its side of the negotiation, and what it was told.
class Client final : Negotiation::Listener {
 public:
  Client(int rank, int size, std::function<void(std::string_view)> answer)
      : answer_(std::move(answer)), sets_(size), negotiation(rank, sets_, *this) {}

  std::deque<std::string> inbox;  ///< sent by the sequencer, not yet read
  std::vector<std::vector<Told>> batches;
  std::vector<std::string> errors;
  std::vector<ErrorCode> codes;
  std::vector<int> left;  ///< ranks whose shutdown it was told
  int reports_by_id = 0;
  int carries = 0;  ///< those of them with numbers
  int flushes = 0;

  /// What it says to submit numbers that lie there.
  std::string submit(const Request& request, const void* numbers = nullptr) {
    auto entry = std::make_unique<Entry>(Submission{request, {numbers}, {}});
    Writer writer(entry->encoded);
    request.encode(writer);
    std::string message = negotiation.announcement(negotiation.add(std::move(entry)));
    const Up kind = Reader(message).get<Up>();
    reports_by_id += kind != Up::kRequest;
    carries += kind == Up::kCarry;
    return message;
  }

  /// Names in the order in which it was told to run them.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& batch : batches) {
      for (const Told& told : batch) all.push_back(told.name());
    }
    return all;
  }

 private:
  void receive_refusal(const Entry&, const Error& error) override {
    codes.push_back(error.code);
    errors.emplace_back(error.what());
  }
  void receive_flush(std::string_view message) override {
    ++flushes;
    answer_(message);
  }
  void receive_tune(int64_t) override {}
  void receive_meet(int) override {}
  void receive_shutdown(int rank) override { left.push_back(rank); }
  void receive_states(Reader&) override {}
  void receive_batch(std::vector<Item> items) override {
    std::vector<Told> batch;
    for (const Item& item : items) {
      // A response that comes again was told by its id.
      const bool by_id = !seen_.insert(item.response).second;
      batch.push_back({*item.response, item.ordinal, by_id, item.result});
      const Request& base = item.response->base;
      if (changes_sets(base.kind)) sets_.change(base);
    }
    batches.push_back(std::move(batch));
  }

  const std::function<void(std::string_view)> answer_;
  ProcessSets sets_;
  std::set<std::shared_ptr<const Response>> seen_;

 public:
  Negotiation negotiation;
};

class Fleet {
 public:
  explicit Fleet(int size, const EngineOptions& options = {})
      : Fleet(HostMap::single(size), options) {}

  explicit Fleet(HostMap map, const EngineOptions& options = {}, bool carries = false)
      : hosts(std::move(map)),
        sequencer(
            hosts, options,
            [this](const Recipients& to, std::string_view message) {
              for (int at = 0; at < to.members.size() && to.ranks.empty(); ++at) {
                client(to.members.rank_at(at)).inbox.emplace_back(message);
              }
              for (int r : to.ranks) client(r).inbox.emplace_back(message);
            },
            carries) {
    const int size = hosts.size();
    for (int r = 0; r < size; ++r) {
      clients.emplace_back(
          r, size, [this, r](std::string_view answer) { sequencer.receive(r, answer, now_ns); });
    }
  }

  Client& client(int rank) { return clients[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(clients.size()); }

  /// The rank submits; by short id if it knows one.
  void submit(int rank, const Request& request, const void* numbers = nullptr) {
    sequencer.receive(rank, client(rank).submit(request, numbers), now_ns);
  }

  void submit_everywhere(const Request& request) {
    for (int r = 0; r < size(); ++r) submit(r, request);
  }

  void leave(int rank) { say(rank, Up::kShutdown); }
  void finish(int rank) { say(rank, Up::kLast); }
  void say(int rank, Up what) {
    std::string message;
    Writer(message).put(what);
    sequencer.receive(rank, message, now_ns);
  }

  /// Sends out everything that is ready.
  void dispatch() {
    while (sequencer.dispatch(now_ns)) {
    }
  }

  /// The rank reads its oldest message; false if there is none.
  bool read_one(int rank) {
    Client& c = client(rank);
    if (c.inbox.empty()) return false;
    const std::string message = c.inbox.front();
    c.inbox.pop_front();
    c.negotiation.receive(message);
    return true;
  }

  void read_all() {
    for (int r = 0; r < size(); ++r) {
      while (read_one(r)) {
      }
    }
  }

  /// Dispatches and lets everybody read, until nothing happens any more.
  void settle() {
    dispatch();
    read_all();
    dispatch();
    read_all();
  }

  /// Looks for stalls once a second, as the driver does.
  void watch(int64_t seconds) {
    for (; seconds > 0; --seconds) sequencer.check_stalls(now_ns += 1'000'000'000);
  }

  int64_t now_ns = 0;
  HostMap hosts;
  std::deque<Client> clients;  // they stay where they are
  Sequencer sequencer;
};

}  // namespace sirtaki::testing
