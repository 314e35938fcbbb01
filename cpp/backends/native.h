#pragma once

#include <map>
#include <memory>

#include "backends/backend.h"
#include "collectives/collectives.h"
#include "transport/inter_host_group.h"

namespace sirtaki {

/// Sirtaki's own transports: shared memory among the ranks of a host, sockets between hosts.
class NativeBackend : public Backend {
 public:
  /// `make_network`: for each process set that spans hosts.
  NativeBackend(Endpoint& endpoint, const HostMap& hosts, MakeNetwork make_network);

  const char* name() const override { return "native"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override;
  bool may_be_spared() const override { return true; }
  int track_of(int32_t set) const override { return Region::area_of_set(set); }
  WorkPtr add_set(int32_t set, const std::vector<int>& ranks) override;
  WorkPtr remove_set(int32_t set) override;

 private:
  /// A process set that this rank belongs to; one of the two is null.
  struct Members {
    std::unique_ptr<Group> local;  ///< if all members are on this host
    std::unique_ptr<InterHostGroup> inter_host;

    Group& on_host() const { return local != nullptr ? *local : inter_host->local(); }
    Task carry_out(const Op& op, const Streams& in, const Streams& out) const {
      return inter_host != nullptr ? sirtaki::carry_out(*inter_host, op, in, out)
                                   : sirtaki::carry_out(*local, op, in, out);
    }
    InterHostNet* net() const { return inter_host != nullptr ? &inter_host->net() : nullptr; }
  };

  Members members_of(int32_t set, const std::vector<int>& ranks);
  Task world_barrier();
  Task add(int32_t set, std::vector<int> ranks);
  Task remove(int32_t set);

  Endpoint& endpoint_;
  const HostMap hosts_;
  const MakeNetwork make_network_;
  std::map<int32_t, Members> sets_;
};

}  // namespace sirtaki
