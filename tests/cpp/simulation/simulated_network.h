#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulation/fabric.h"
#include "transport/memory/doorbell.h"

namespace sirtaki::testing {

/// A channel through the fabric.
class SimulatedChannel final : public Channel {
 public:
  /// Listed in `live`, if given, while it lives.
  using Live = std::shared_ptr<std::set<SimulatedChannel*>>;

  SimulatedChannel(Fabric& fabric, std::shared_ptr<Connection> connection, int self, int peer,
                   Live live = nullptr);
  ~SimulatedChannel() override;

  Ticket send(std::span<const std::byte> from) override;
  Ticket receive(std::span<std::byte> to) override;
  bool flush() override;
  bool fetch() override;
  void prepare(Sleep&) const override {}  // the fabric wakes
  void abandon() override;
  void close() override { fabric_.close(*connection_, self_); }
  bool is_silent(int64_t limit_ns) override;

  /// Something can be moved, or it has ended.
  bool ready() const;

 private:
  bool ended() const;

  Fabric& fabric_;
  const std::shared_ptr<Connection> connection_;
  const int self_;
  const Live live_;
  std::vector<std::span<const std::byte>> sending_;
  std::vector<std::span<std::byte>> receiving_;
};

/// Channels through the fabric.
class SimulatedNetwork final : public Network {
 public:
  /// `first_number`: no other network of the rank has these numbers, now or later.
  SimulatedNetwork(Fabric& fabric, int rank, const NetworkUse& use, int first_number)
      : fabric_(fabric), rank_(rank), use_(use), first_number_(first_number) {}
  ~SimulatedNetwork() override { give_up(); }

  void open(std::vector<int> ranks) override;
  std::vector<std::unique_ptr<Channel>> opened() override;
  void give_up() override { fabric_.forget(rank_, first_number_); }
  std::string why_broken(int) const override { return {}; }
  int64_t now() const override { return fabric_.now_ns(); }

  std::span<Channel* const> ready() override;
  void prepare(Sleep&) const override {}
  void guard() override {}

  /// The fabric has something for this rank.
  void tell() {
    if (use_.news != nullptr && !ready().empty()) use_.news->store(true);
  }

 private:
  Fabric& fabric_;
  const int rank_;
  const NetworkUse use_;
  const int first_number_;
  SimulatedChannel::Live channels_ = std::make_shared<std::set<SimulatedChannel*>>();
  std::vector<Channel*> ready_;
};

}  // namespace sirtaki::testing
