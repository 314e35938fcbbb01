#pragma once

#include <memory>
#include <string>

#include "base/fork_mark.h"
#include "base/log.h"
#include "engine/execution/callbacks.h"
#include "engine/observe/hooks.h"
#include "engine/observe/recorder.h"
#include "engine/observe/timeline.h"
#include "engine/options.h"
#include "transport/group.h"
#include "transport/hosts.h"
#include "transport/network/links.h"

namespace sirtaki {

/// The context of all parts of a rank's engine: the rank and its place, its options, the memory
/// that it shares with its host's ranks, and the places to record events.
struct RankContext {
  RankContext(int its_rank, HostMap its_hosts, const std::shared_ptr<Region>& its_region,
              LinkSet its_links, const EngineOptions& its_options);

  /// `rank 3 (node-b)`.
  std::string name_of(int other) const;
  /// Throws in a forked child, which has none of the engine's threads.
  void require_own_process() const;

  const HostMap hosts;
  const int rank;
  const int place;  ///< on the host
  const int size;
  const ForkMark mark;
  const EngineOptions options;
  const Log log;
  const std::shared_ptr<Region> region;
  const LinkSet links;
  Endpoint endpoint;
  Doorbell& doorbell;  ///< the endpoint's
  Recorder recorder;
  CurrentTimeline timeline;
  Hooks hooks;
  Callbacks callbacks;
};

}  // namespace sirtaki
