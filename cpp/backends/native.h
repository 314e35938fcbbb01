#pragma once

#include <map>
#include <memory>

#include "backends/backend.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// Our own transports: shared memory among the ranks of a host, sockets between hosts.
class NativeBackend : public Backend {
 public:
  /// `connect` is called when a rank of another host is first needed.
  NativeBackend(Endpoint& endpoint, const HostMap& hosts, Connect connect);
  /// A world on one host.
  explicit NativeBackend(Endpoint& endpoint);

  const char* name() const override { return "native"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override;
  int lane_of(int32_t set) const override { return Region::area_of_set(set); }
  WorkPtr add_set(int32_t set, const std::vector<int>& ranks) override;
  WorkPtr remove_set(int32_t set) override;

 private:
  /// A process set this rank is a member of; one of the two.
  struct Members {
    std::unique_ptr<Group> local;  ///< all are on this host
    std::unique_ptr<WideGroup> wide;

    Group& on_host() const { return local != nullptr ? *local : wide->local(); }
    Sockets* sockets() const { return wide != nullptr ? &wide->sockets() : nullptr; }
  };

  Members members_of(int32_t set, const std::vector<int>& ranks);
  Task world_barrier();
  Task add(int32_t set, std::vector<int> ranks);
  Task remove(int32_t set);

  Endpoint& endpoint_;
  const HostMap hosts_;
  const Connect connect_;
  std::map<int32_t, Members> sets_;
};

}  // namespace sirtaki
