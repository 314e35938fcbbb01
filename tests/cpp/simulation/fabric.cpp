#include "simulation/fabric.h"

#include <algorithm>
#include <utility>

namespace sirtaki::testing {
namespace {

constexpr int64_t kRetryNs = 200'000'000;
constexpr int64_t kConnectNs = 10'000'000'000;  // after that a connection cannot be made

}  // namespace

Fabric::Guard Fabric::add(Rule rule) {
  const auto guard = std::make_shared<const int>(0);
  rules_.emplace_back(guard, std::move(rule));
  return guard;
}

Fate Fabric::fate_of(const Frame& frame) {
  ++frames_;
  std::erase_if(rules_, [](const auto& rule) { return rule.first.expired(); });
  for (const auto& [guard, rule] : rules_) {
    const std::optional<Fate> fate = rule(frame);
    if (!fate) continue;
    dropped_ += fate->kind == Fate::kDrop ? 1 : 0;
    return *fate;
  }
  return {};
}

int64_t Fabric::latency() { return 20'000 + static_cast<int64_t>(random_() % 100'000); }

// ---- Connections ----

void Fabric::ask(int rank, int peer, int number) {
  Asked& asked = asked_[{std::min(rank, peer), std::max(rank, peer), number}];
  asked.by.insert(rank);
  asked.told = false;
  asked.late_ns = now_ns_ + kConnectNs;
  asked.ready_ns = asked.by.size() == 2 ? now_ns_ + latency() : asked.late_ns;
}

std::shared_ptr<Connection> Fabric::connect(int a, int b) {
  auto connection = std::make_shared<Connection>(a, b);
  std::erase_if(connections_, [](const auto& one) { return one.expired(); });
  connections_.push_back(connection);
  return connection;
}

std::vector<std::shared_ptr<Connection>> Fabric::made(int rank, int first_number, int numbers) {
  std::vector<std::shared_ptr<Connection>> made;
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto [low, high, number] = it->first;
    Asked& asked = it->second;
    const bool wanted = asked.by.contains(rank) && (low == rank || high == rank) &&
                        number >= first_number && number < first_number + numbers;
    if (!wanted || now_ns_ < asked.ready_ns) {
      ++it;
      continue;
    }
    const bool late = asked.connection == nullptr && now_ns_ >= asked.late_ns;
    const bool passes =
        asked.connection != nullptr || late ||
        (fate_of({low, high, 0}).kind < Fate::kDrop && fate_of({high, low, 0}).kind < Fate::kDrop);
    if (!passes) {
      asked.ready_ns = now_ns_ + kRetryNs;
      asked.told = false;
      ++it;
      continue;
    }
    if (asked.connection == nullptr) asked.connection = connect(low, high);
    if (late) asked.connection->broken = "it took too long";
    made.push_back(asked.connection);
    asked.by.erase(rank);
    it = asked.by.empty() ? asked_.erase(it) : std::next(it);
  }
  return made;
}

void Fabric::forget(int rank, int first_number) {
  std::erase_if(asked_, [&](const auto& entry) {
    const auto [low, high, number] = entry.first;
    return number >= first_number && (low == rank || high == rank) &&
           entry.second.by.contains(rank) && entry.second.by.size() == 1;
  });
}

void Fabric::close(Connection& connection, int from) {
  Pipe& pipe = connection.from(from);
  pipe.closed = true;
  news_.push_back(pipe.to);
}

void Fabric::kill(int rank) {
  dead_.insert(rank);
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (connection == nullptr) continue;
    if (connection->pipes[0].from != rank && connection->pipes[0].to != rank) continue;
    close(*connection, rank);
  }
}

// ---- Bytes ----

size_t Fabric::send(Connection& connection, int from, std::span<const std::byte> bytes) {
  Pipe& pipe = connection.from(from);
  const size_t room = kWindow - std::min(kWindow, pipe.filled);
  const size_t count = std::min({room, bytes.size(), size_t{1} + random_() % kWindow});
  if (count == 0 || pipe.closed) return 0;
  Pipe::Parcel parcel{
      {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count)}, now_ns_, 0, false};
  dispatch(connection, pipe, parcel);
  if (pipe.unheard_ns == 0) pipe.unheard_ns = now_ns_;
  pipe.filled += count;
  pipe.on_way.push_back(std::move(parcel));
  return count;
}

void Fabric::dispatch(Connection& connection, Pipe& pipe, Pipe::Parcel& parcel) {
  const Fate fate = fate_of({pipe.from, pipe.to, parcel.bytes.size()});
  parcel.dropped = fate.kind == Fate::kDrop;
  parcel.arrives_ns = now_ns_ + (parcel.dropped ? kRetryNs : latency() + fate.delay_ns);
  due_.emplace(parcel.arrives_ns, connection.weak_from_this());
  if (fate.kind == Fate::kCut && connection.broken.empty()) {
    connection.broken = "the connection was reset";
    news_.insert(news_.end(), {pipe.from, pipe.to});
  }
}

size_t Fabric::take(Connection& connection, int to, std::span<std::byte> room) {
  Pipe& pipe = connection.to(to);
  const size_t count = std::min(room.size(), pipe.arrived.size());
  const auto end = pipe.arrived.begin() + static_cast<ptrdiff_t>(count);
  std::copy(pipe.arrived.begin(), end, room.begin());
  pipe.arrived.erase(pipe.arrived.begin(), end);
  if (count > 0 && pipe.filled >= kWindow) news_.push_back(pipe.from);
  pipe.filled -= count;
  return count;
}

int64_t Fabric::next_ns() const {
  int64_t next = news_.empty() ? kForever : now_ns_;
  if (!due_.empty()) next = std::min(next, due_.begin()->first);
  for (const auto& [key, asked] : asked_) {
    if (!asked.told) next = std::min(next, asked.ready_ns);
  }
  return next;
}

void Fabric::deliver(const std::function<void(int)>& wakes) {
  for (const int rank : std::exchange(news_, {})) wakes(rank);
  while (!due_.empty() && due_.begin()->first <= now_ns_) {
    const auto connection = due_.begin()->second.lock();
    due_.erase(due_.begin());
    if (connection == nullptr || !connection->broken.empty()) continue;
    for (Pipe& pipe : connection->pipes) arrive(*connection, pipe, wakes);
  }
  for (auto& [key, asked] : asked_) {
    if (asked.told || asked.ready_ns > now_ns_) continue;
    asked.told = true;
    for (const int rank : asked.by) wakes(rank);
  }
}

void Fabric::arrive(Connection& connection, Pipe& pipe, const std::function<void(int)>& wakes) {
  while (!pipe.on_way.empty() && pipe.on_way.front().arrives_ns <= now_ns_) {
    Pipe::Parcel& parcel = pipe.on_way.front();
    if (parcel.dropped) {
      dispatch(connection, pipe, parcel);
      return;
    }
    pipe.arrived.insert(pipe.arrived.end(), parcel.bytes.begin(), parcel.bytes.end());
    pipe.on_way.pop_front();
    // Its kernel answers, whether or not the process takes it.
    const bool heard = fate_of({pipe.to, pipe.from, 0}).kind < Fate::kDrop;
    if (!heard) {
      pipe.on_way.push_back({{}, pipe.unheard_ns, now_ns_ + kRetryNs, false});
      due_.emplace(now_ns_ + kRetryNs, connection.weak_from_this());
    }
    if (heard) pipe.unheard_ns = pipe.on_way.empty() ? 0 : pipe.on_way.front().sent_ns;
    wakes(pipe.to);
  }
}

}  // namespace sirtaki::testing
