#include "engine/rank_context.h"

#include <utility>

namespace sirtaki {

RankContext::RankContext(int its_rank, HostMap its_hosts, const std::shared_ptr<Region>& its_region,
                         LinkSet its_links, const EngineOptions& its_options)
    : hosts(std::move(its_hosts)),
      rank(its_rank),
      place(hosts.place_of(its_rank)),
      size(hosts.size()),
      options(its_options),
      log("sirtaki: " + name_of(rank), options.log_level, options.log_time),
      region(its_region),
      links(std::move(its_links)),
      endpoint(region, rank, place, {options.caller_spin_ns, options.engine_spin_ns},
               {.direct_hosts = options.direct_hosts}, links.heaps, options.silent_seconds),
      doorbell(endpoint.doorbell),
      recorder(region->records(place), region->rank(place).totals),
      callbacks(log) {}

std::string RankContext::name_of(int other) const {
  return "rank " + std::to_string(other) + options.host_text(other);
}

void RankContext::require_own_process() const {
  if (!mark.forked()) return;
  throw Error(ErrorCode::kInternal,
              "this process was forked from " + name_of(rank) +
                  " after init(), and is no rank of its own: call collectives in the process that "
                  "called init(), or start others by the 'spawn' method and let each call init()");
}

}  // namespace sirtaki
