#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/channel.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// A rank's channels of one network. This class decides which rank is lost and when: both ends of a
/// broken channel know that it broke, but not why.
class Channels {
 public:
  /// `silent_ns`: how long a host may fail to answer; 0: without limit.
  Channels(int rank, const Doorbell& doorbell, std::unique_ptr<Network> network, int64_t silent_ns)
      : rank_(rank), doorbell_(doorbell), network_(std::move(network)), silent_ns_(silent_ns) {}

  Network& network() { return *network_; }

  /// Starts connecting to those of `ranks` that have no channel.
  void open(std::vector<int> ranks) {
    std::erase_if(ranks, [&](int rank) { return has(rank) || opening_.contains(rank); });
    if (ranks.empty()) return;
    opening_.insert(ranks.begin(), ranks.end());
    network_->open(std::move(ranks));
  }
  bool opening() const { return !opening_.empty(); }
  /// Returns new channels. Throws if one cannot be opened.
  std::vector<Channel*> opened() {
    std::vector<Channel*> result;
    if (!opening()) return result;
    for (std::unique_ptr<Channel>& channel : network_->opened()) {
      const int rank = channel->rank();
      if (channel->broken()) end_world(rank, "it cannot be opened: " + channel->failure());
      opening_.erase(rank);
      result.push_back((channels_[rank] = std::move(channel)).get());
    }
    return result;
  }
  bool has(int rank) const { return channels_.contains(rank); }

  /// Moves what can be moved; false if nothing could.
  bool progress(Channel& channel) {
    const bool left = channel.flush();
    const bool came = channel.fetch();
    if (channel.broken()) lose(channel);
    return left || came;
  }
  /// Handles a broken channel. Its other end may only have given up because of a third rank: the
  /// watcher of processes and hosts knows which, and gets time to report it.
  void lose(const Channel& channel) { lose(channel.rank(), channel.failure()); }
  /// The end of this rank's channel is no loss: the rank has announced that it leaves.
  void excuse(int rank) { excused_.insert(rank); }
  /// Whether a rank is about to be reported as lost.
  bool losing() const { return broken_.has_value(); }
  /// While nothing moves: reports the lost rank, unless one was reported before; from time to time
  /// checks whether the other hosts answer. Throws once the world has ended.
  void check_patience() {
    settle();
    const int64_t now = network_->now();
    if (now < look_at_ns_) return;
    look_at_ns_ = now + kLookAgainNs;
    for (const auto& [rank, channel] : channels_) {
      if (!channel->broken() && channel->is_silent(silent_ns_)) {
        lose(rank, "no answer from the other host");
      }
    }
  }
  /// Throws once the world has ended, or once the time to report another lost rank is over.
  void settle() {
    if (!broken_) return;
    doorbell_.check_abort();
    if (network_->now() < settled_ns_) return;
    const std::string known = network_->why_broken(broken_->rank);
    end_world(broken_->rank, known.empty() ? broken_->reason : known);
  }
  /// Ends the world now; the error names the rank that was lost first.
  [[noreturn]] void end_world(int rank, const std::string& why) const {
    doorbell_.end_world({rank, rank_, why});
  }

  /// Forgets the noted memory after an error. If the error did not end the world, closes the
  /// channels, which peers notice; else they stay open, so that no peer takes this rank for the
  /// lost one.
  void drop() {
    network_->give_up();
    opening_.clear();
    broken_.reset();
    if (doorbell_.aborted()) {
      for (const auto& [rank, channel] : channels_) channel->abandon();
      return;
    }
    for (const auto& [rank, channel] : channels_) channel->close();
    channels_.clear();
  }

 private:
  static constexpr int64_t kSettleNs = 500'000'000;
  static constexpr int64_t kLookAgainNs = 250'000'000;

  void lose(int rank, const std::string& why) {
    if (broken_ || excused_.contains(rank)) return;
    broken_ = {rank, rank_, why};
    settled_ns_ = network_->now() + kSettleNs;
  }

  const int rank_;
  const Doorbell& doorbell_;
  const std::unique_ptr<Network> network_;
  const int64_t silent_ns_;
  std::set<int> opening_;
  std::unordered_map<int, std::unique_ptr<Channel>> channels_;
  std::set<int> excused_;
  std::optional<Loss> broken_;  ///< the first one
  int64_t settled_ns_ = 0;      ///< until when others may report another cause for the world's end
  int64_t look_at_ns_ = 0;      ///< when to check again whether the other hosts answer
};

}  // namespace sirtaki
