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
  ~NativeBackend() override;

  const char* name() const override { return "native"; }
  void run(const Op& op, const Streams& in, const Streams& out) override;
  void add_set(int32_t set, const std::vector<int>& ranks) override;
  void remove_set(int32_t set) override;

 private:
  /// A process set this rank is a member of; one of the two.
  struct Members {
    std::unique_ptr<Group> local;  ///< all are on this host
    std::unique_ptr<WideGroup> wide;
  };

  Members members_of(int32_t set, const std::vector<int>& ranks);
  void world_barrier();
  void run_in_set(Members& members, const Op& op, const Streams& in, const Streams& out);
  void run_pair(const Op& op, const Streams& in, const Streams& out);
  Group& pair_with(int rank);

  Endpoint& endpoint_;
  const HostMap hosts_;
  Sockets sockets_;
  std::map<int32_t, Members> sets_;
  std::map<int, std::unique_ptr<Group>> pairs_;
};

}  // namespace sirtaki
