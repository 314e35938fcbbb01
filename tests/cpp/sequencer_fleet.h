#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/sequencer.h"
#include "requests.h"

// The ranks of a world as the sequencer sees them, without threads: what they send and receive.
namespace sirtaki::testing {

/// An operation that a rank was told to run.
struct Told {
  Response response;
  uint64_t ordinal = 0;
  bool by_id = false;

  const std::string& name() const { return response.base.name; }
};

/// One rank's side of the protocol, as the engine does it.
struct Client {
  std::map<std::string, uint32_t> ids;
  std::map<uint32_t, Response> known;
  std::map<int32_t, uint64_t> ordinals;
  std::map<std::string, std::string> waiting;  ///< key of what it has submitted → encoded request

  std::deque<std::string> inbox;  ///< sent by the sequencer, not yet read
  std::vector<std::vector<Told>> batches;
  std::vector<std::string> errors;
  std::vector<ErrorCode> codes;
  std::vector<int> left;  ///< ranks whose shutdown it was told
  int reports_by_id = 0;
  int flushes = 0;

  /// Names in the order in which it was told to run them.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& batch : batches) {
      for (const Told& told : batch) all.push_back(told.name());
    }
    return all;
  }
};

class Fleet {
 public:
  explicit Fleet(int size, const EngineOptions& options = {})
      : clients(static_cast<size_t>(size)),
        sequencer(size, options, [this](const std::vector<int>& ranks, std::string_view message) {
          for (int r : ranks) clients[static_cast<size_t>(r)].inbox.emplace_back(message);
        }) {}

  Client& client(int rank) { return clients[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(clients.size()); }

  /// The rank submits; by short id if it knows one.
  void submit(int rank, const Request& request) {
    sequencer.receive(rank, message_of(rank, request), now_ns);
  }

  /// What the rank says to submit.
  std::string message_of(int rank, const Request& request) {
    Client& c = client(rank);
    const uint64_t ordinal = request.name.empty() ? c.ordinals[request.set]++ : 0;
    std::string encoded;
    Writer writer(encoded);
    request.encode(writer);
    std::string message;
    Writer out(message);
    if (c.ids.count(encoded) > 0) {
      ++c.reports_by_id;
      out.put(Up::kReady).put(c.ids.at(encoded));
    } else {
      out.put(Up::kRequest);
      message += encoded;
    }
    c.waiting[match_key(request, ordinal)] = encoded;
    return message;
  }

  void submit_everywhere(const Request& request) {
    for (int r = 0; r < size(); ++r) submit(r, request);
  }

  void leave(int rank) {
    std::string message;
    Writer(message).put(Up::kShutdown);
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
    Reader in(message);
    switch (in.get<Down>()) {
      case Down::kBatch:
        read_batch(c, in);
        break;
      case Down::kError:
        c.waiting.erase(in.get_string());
        c.codes.push_back(static_cast<ErrorCode>(in.get<uint8_t>()));
        c.errors.push_back(in.get_string());
        break;
      case Down::kFlush:
        read_flush(rank);
        break;
      case Down::kShutdown:
        c.left.push_back(in.get<int32_t>());
        break;
      default:
        break;
    }
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

  int64_t now_ns = 0;
  std::vector<Client> clients;
  Sequencer sequencer;

 private:
  void read_batch(Client& c, Reader& in) {
    std::vector<Told> batch;
    const auto count = in.get<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      Told told;
      told.by_id = !in.get<bool>();
      const auto id = in.get<uint32_t>();
      told.ordinal = in.get<uint64_t>();
      told.response = told.by_id ? c.known.at(id) : Response::decode(in);
      if (!told.by_id && id != 0) c.known[id] = told.response;
      const Request& base = told.response.base;
      if (base.kind == Kind::kJoin) c.ordinals[base.set] = told.ordinal;
      const auto own = c.waiting.find(match_key(base, told.ordinal));
      if (own != c.waiting.end()) {
        if (!told.by_id && id != 0) c.ids[own->second] = id;
        c.waiting.erase(own);
      }
      batch.push_back(std::move(told));
    }
    c.batches.push_back(std::move(batch));
  }

  void read_flush(int rank) {
    Client& c = client(rank);
    c.ids.clear();
    c.known.clear();
    ++c.flushes;
    std::string message;
    Writer(message).put(Up::kFlushed);
    sequencer.receive(rank, message, now_ns);
  }
};

}  // namespace sirtaki::testing
